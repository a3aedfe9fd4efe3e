package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"unicode/utf8"
)

const (
	rowSize    = 400     // bytes, about
	corpusSize = 1 << 20 // bytes, at most
)

// corpus is a kind of text, in rows.
type corpus struct {
	name string
	rows []string
	size int // bytes of all rows
}

// readCorpora reads text from every Go installation: code and comments from Go's
// sources, Markdown from modules. Chinese text is generated.
func readCorpora(ctx context.Context, root string) ([]corpus, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOROOT", "GOMODCACHE").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	goroot, modules, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	source := filepath.Join(goroot, "src")
	english, err := gather(source, ".go", comments)
	if err != nil {
		return nil, err
	}
	code, err := gather(filepath.Join(source, "net"), ".go", func(b []byte) []byte { return b })
	if err != nil {
		return nil, err
	}
	markdown, err := gather(root, ".md", func(b []byte) []byte { return b })
	if err != nil {
		return nil, err
	}
	more, err := gather(modules, ".md", func(b []byte) []byte { return b })
	if err != nil {
		return nil, err
	}
	all := []corpus{
		cut("English", english), cut("Markdown", append(markdown, more...)), cut("code", code),
		cut("Chinese", chinese()),
	}
	mixed := corpus{name: "mixed"}
	for i := 0; mixed.size < corpusSize; i++ {
		from := all[i%len(all)]
		row := from.rows[i%len(from.rows)]
		mixed.rows = append(mixed.rows, row)
		mixed.size += len(row)
	}
	return append(all, mixed), nil
}

// gather joins the files of a folder, in order of their names.
func gather(dir, suffix string, take func([]byte) []byte) ([]byte, error) {
	var all []byte
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case len(all) >= corpusSize:
			return fs.SkipAll
		case d.IsDir() && (d.Name() == "testdata" || d.Name() == ".git" || d.Name() == "bin"):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(path, suffix):
			return nil
		}
		text, err := os.ReadFile(path)
		if err == nil && utf8.Valid(text) {
			all = append(all, take(text)...)
		}
		return err
	})
	return all, err
}

// comments returns the text of a file's line comments, without licences.
func comments(source []byte) []byte {
	var text bytes.Buffer
	for lines := bufio.NewScanner(bytes.NewReader(source)); lines.Scan(); {
		line, ok := strings.CutPrefix(lines.Text(), "// ")
		if ok && !strings.Contains(line, "icense") && !strings.Contains(line, "Copyright") {
			text.WriteString(line)
			text.WriteByte('\n')
		}
	}
	return text.Bytes()
}

// cut splits a text into rows.
func cut(name string, text []byte) corpus {
	c := corpus{name: name}
	for text := string(text); len(text) >= rowSize && c.size < corpusSize; {
		at := rowSize
		for at < len(text) && !utf8.RuneStart(text[at]) {
			at--
		}
		c.rows = append(c.rows, text[:at])
		c.size += at
		text = text[at:]
	}
	return c
}

// chinese generates sentences of common words; every fourth has an English word or a
// number.
func chinese() []byte {
	words := strings.Fields(`我们 今天 在 北京 的 公司 开会 讨论 下 一个 季度 计划 他 说 这个 系统 可以 处理 大量 数据 如果 用户 需要
		帮助 请 联系 客服 中心 产品 质量 非常 好 价格 也 合理 学校 里 有 很多 学生 正在 学习 科学 技术 发展 迅速 改变 了 人们 生活 方式 天气
		预报 明天 会 下雨 所以 出门 记得 带 雨伞 经济 增长 速度 放缓 但是 就业 市场 仍然 稳定 医生 建议 病人 多 喝水 注意 休息 火车 晚点
		两个 小时 旅客 都 在 车站 等待 图书馆 收藏 古代 文献 研究 历史 文化 具有 重要 意义 模型 训练 完成 之后 进行 评估 结果 显示 准确率
		提高 百分之 五 城市 交通 拥堵 问题 得到 缓解 新鲜 水果 蔬菜 每天 早上 从 农村 运到 超市`)
	marks := []string{"，", "。", "、", "？", "！", "：", "”", "“"}
	foreign := []string{" API ", "2026", " GPU ", "http", " Go ", "%", "v1.2", "\n"}
	random := rand.New(rand.NewPCG(1, 2))
	var text bytes.Buffer
	for text.Len() < corpusSize {
		for range 2 + random.IntN(8) {
			text.WriteString(words[random.IntN(len(words))])
		}
		if random.Float64() < 0.25 {
			text.WriteString(foreign[random.IntN(len(foreign))])
		}
		text.WriteString(marks[random.IntN(len(marks))])
	}
	return text.Bytes()
}
