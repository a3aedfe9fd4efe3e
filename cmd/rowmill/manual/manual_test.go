package manual_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rowmill/rowmill/cmd/rowmill/manual"
	"github.com/rowmill/rowmill/internal/golden"
	"github.com/rowmill/rowmill/internal/must"
)

func tree() *cobra.Command {
	root := &cobra.Command{Use: "mill", Short: "Grind rows"}
	jobs := &cobra.Command{Use: "jobs", Short: "Work with jobs", Run: func(*cobra.Command, []string) {}}
	jobs.PersistentFlags().String("server", "http://127.0.0.1", "`URL` of the service")
	submit := &cobra.Command{
		Use:   "submit FILE",
		Short: "Submit rows",
		Long: `Submit rows, which may begin with
.dots, 'quotes' or "both" and hold \ and -- and ^~` + "`" + `.

    mill jobs submit rows.csv
    .hidden

Last words…`,
		Example: "  mill jobs submit -",
		Run:     func(*cobra.Command, []string) {},
	}
	submit.Flags().IntP("priority", "p", 1, "urgency")
	submit.Flags().Bool("quiet", false, "say nothing")
	submit.Flags().String("wait", "", "how long")
	submit.Flags().Lookup("wait").NoOptDefVal = "1m"
	submit.Flags().String("secret", "", "not for you")
	if err := submit.Flags().MarkHidden("secret"); err != nil {
		panic(err)
	}
	jobs.AddCommand(submit, &cobra.Command{Use: "internal", Hidden: true, Run: func(*cobra.Command, []string) {}})
	root.AddCommand(jobs, manual.Command("1.2.3", "2026-11-25T23:10:18-05:00"))
	return root
}

func TestPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	root := tree()
	root.SetArgs([]string{"manual", dir})
	must.Succeed(t, root.Execute())
	pages := must.Get(filepath.Glob(filepath.Join(dir, "*")))(t)
	var all []string
	for _, page := range pages {
		text := must.Get(os.ReadFile(page))(t)
		if !strings.Contains(page, "completion") { // except the library's completion commands
			all = append(all, string(text))
		}
	}
	golden.CheckFile(t, "testdata/pages.txt", strings.Join(all, "\n"))
}

// TestPageAsRead checks that groff reads the page without a warning, and that its
// output has the exact help text of the command.
func TestPageAsRead(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("groff"); err != nil {
		if os.Getenv("ROWMILL_CI") != "" {
			t.Fatal("no groff in PATH")
		}
		t.Skip("SKIPPED, NOT TESTED: no groff in PATH")
	}
	submit, _, err := tree().Find([]string{"jobs", "submit"})
	must.Succeed(t, err)
	cmd := exec.CommandContext(t.Context(), "groff", "-Kutf8", "-man", "-Tutf8", "-ww", "-P-cbou")
	cmd.Stdin = strings.NewReader(manual.RenderPage(submit, `"2026-11-26" "Rowmill 1.2.3" "Rowmill"`))
	var warnings bytes.Buffer
	cmd.Stderr = &warnings
	out, err := cmd.Output()
	if err != nil || warnings.Len() > 0 {
		t.Fatalf("error %v\n%s", err, warnings.String())
	}
	shown := regexp.MustCompile(`\s+`).ReplaceAllString(string(out), " ")
	for _, want := range []string{
		"Submit rows, which may begin with .dots, 'quotes' or \"both\" and hold \\ and -- and ^~`.",
		"mill jobs submit rows.csv .hidden", "Last words…", "-p, --priority int urgency (default 1)",
		"--wait[=string]", "--server URL", "--quiet say nothing", "mill-jobs(1)",
	} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page does not say %q:\n%s", want, out)
		}
	}
}
