package functions

import "strings"

// maxCells limits the memory for the comparison of two texts. If the texts need a table
// with more cells, all lines between their common start and end are shown as replaced.
const maxCells = 16 << 20

// diffLines compares two texts and returns the lines of both. A line begins with " " if it
// is in both texts, with "-" if it is only in before, and with "+" if it is only in
// after.
func diffLines(before, after string) []string {
	a, b := splitLines(before), splitLines(after)
	var head, tail []string
	for len(a) > 0 && len(b) > 0 && a[0] == b[0] {
		head = append(head, " "+a[0])
		a, b = a[1:], b[1:]
	}
	for len(a) > 0 && len(b) > 0 && a[len(a)-1] == b[len(b)-1] {
		tail = append(tail, " "+a[len(a)-1])
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	out := append(head, diffByLCS(a, b)...)
	for i := len(tail) - 1; i >= 0; i-- {
		out = append(out, tail[i])
	}
	return out
}

// diffByLCS compares two texts without a common start or end. It returns lines in the same
// form as diffLines.
func diffByLCS(a, b []string) (out []string) {
	if len(a)*len(b) > maxCells {
		for _, line := range a {
			out = append(out, "-"+line)
		}
		for _, line := range b {
			out = append(out, "+"+line)
		}
		return out
	}
	// common[i][j] is the length of the longest common subsequence of a[i:]
	// and b[j:].
	common := make([][]int32, len(a)+1)
	for i := range common {
		common[i] = make([]int32, len(b)+1)
	}
	for i := len(a) - 1; i >= 0; i-- {
		for j := len(b) - 1; j >= 0; j-- {
			if a[i] == b[j] {
				common[i][j] = common[i+1][j+1] + 1
			} else {
				common[i][j] = max(common[i+1][j], common[i][j+1])
			}
		}
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case i < len(a) && j < len(b) && a[i] == b[j]:
			out = append(out, " "+a[i])
			i, j = i+1, j+1
		case j == len(b) || i < len(a) && common[i+1][j] >= common[i][j+1]:
			out = append(out, "-"+a[i])
			i++
		default:
			out = append(out, "+"+b[j])
			j++
		}
	}
	return out
}

func splitLines(text string) []string {
	if text == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(text, "\n"), "\n")
}
