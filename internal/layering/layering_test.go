package layering

import (
	_ "embed"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
	"testing"
)

//go:embed layers.txt
var layersText string

// root is the module's directory.
const root = "../.."

// imports calls f for every import of every source file of the module, whatever its build tags.
func imports(t *testing.T, f func(file, pkg, imported string)) {
	t.Helper()
	tree := os.DirFS(root)
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && skipped(tree, name):
			return fs.SkipDir
		case d.IsDir() || !strings.HasSuffix(name, ".go"):
			return nil
		}
		text, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			f(name, path.Dir(name), imported)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// skipped directories hold no packages of this module.
func skipped(tree fs.FS, name string) bool {
	base := path.Base(name)
	if name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata") {
		return true
	}
	_, err := fs.Stat(tree, path.Join(name, "go.mod"))
	return name != "." && err == nil
}

func TestLayers(t *testing.T) {
	rules, err := Parse(layersText)
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	imports(t, func(file, pkg, imported string) {
		seen[pkg] = true
		if wrong := rules.Check(pkg, imported, strings.HasSuffix(file, "_test.go")); wrong != "" {
			t.Errorf("%s: %s", file, wrong)
		}
	})
	for _, pkg := range []string{"protocol/record", "storage", "kraft/quorum", "broker/api", "cmd/gregor"} {
		if !seen[pkg] {
			t.Errorf("the walk did not come by %s", pkg)
		}
	}
}

const sample = `
low          :
mid          : low
mid/midtest  : mid
mid/deep     : low mid
high         : mid/* low(tests)
library example.org/raft : mid
library example.org/wire : mid low(tests)
library example.org/check : tests
`

func TestCheckFindsWhatBreaksTheLayers(t *testing.T) {
	rules, err := Parse(sample)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		pkg, imported string
		test          bool
		want          string
	}{
		{"mid", "gregor/low", false, ""},
		{"high", "gregor/mid", false, ""},
		{"high", "gregor/mid/deep", false, ""},
		{"mid", "gregor/mid/midtest", true, ""},
		{"mid", "gregor/mid/midtest", false, "mid must not import mid/midtest"},
		{"mid", "fmt", false, ""},
		{"mid", "go/parser", false, ""},
		{"mid", "example.org/raft/v3/raftpb", false, ""},
		{"low", "example.org/check", true, ""},
		{"low", "gregor/low", true, ""},
		{"low", "example.org/wire", true, ""},
		{"low", "example.org/wire", false, "low must not import example.org/wire, which is for mid, low(tests)"},
		{"high", "example.org/wire", true, "high must not import example.org/wire"},
		{"high", "gregor/high/hightest", true, "package high/hightest has no line"},
		{"high", "gregor/low", false, "high must not import low"},
		{"high", "gregor/low", true, ""},
		{"low", "gregor/mid", false, "low must not import mid"},
		{"low", "gregor/mid", true, "low must not import mid"},
		{"mid", "gregor/mid/deep", false, "mid must not import mid/deep"},
		{"new", "fmt", false, "package new has no line"},
		{"high", "gregor/new", false, "package new has no line"},
		{"low", "example.org/raft", false, "low must not import example.org/raft, which is for mid"},
		{"low", "example.org/raft", true, "low must not import example.org/raft, which is for mid"},
		{"low", "example.org/check", false, "low must not import example.org/check, which is for tests"},
		{"low", "example.org/raftish", false, "a library that layers.txt does not name"},
	} {
		got := rules.Check(c.pkg, c.imported, c.test)
		if c.want == "" && got != "" || !strings.Contains(got, c.want) {
			t.Errorf("%s imports %s (test %v): %q, want %q", c.pkg, c.imported, c.test, got, c.want)
		}
	}
}

func TestParseRefusesLinesThatCannotHold(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"low", "line 1 has no colon"},
		{"low :\nlow :", "line 2: low has two lines"},
		{"mid : low\nlow :", "line 1: mid may import low, of which no line above tells"},
		{"mid : low/*\nlow :", "line 1: mid may import low/*, of which no line above tells"},
	} {
		if _, err := Parse(c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v, want %q", c.text, err, c.want)
		}
	}
}
