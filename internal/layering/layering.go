// Package layering holds the module's layers: layers.txt says which package may import which, and which library is
// for whom. Its test parses every source file and reports what does not follow.
package layering

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// Module is the path of the module whose layers these are.
const Module = "gregor"

// testsOnly stands for all test files in the list of a library's users. As a suffix it makes an import, or a library's
// user, one of test files only.
const (
	testsOnly   = "tests"
	testsSuffix = "(" + testsOnly + ")"
)

// Rules is a parsed layers.txt.
type Rules struct {
	layers    []layer
	libraries []library
}

// layer is the line of one package.
type layer struct {
	name    string
	imports []string
}

// library is the line of one library: the path that its import paths begin with, and its users.
type library struct {
	path  string
	users []string
}

// Parse reads the rules. It refuses a line that allows what no line above it can grant.
func Parse(text string) (*Rules, error) {
	r := &Rules{}
	number := 0
	for line := range strings.Lines(text) {
		number++
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		left, right, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("line %d has no colon: %q", number, line)
		}
		left = strings.TrimSpace(left)
		if path, ok := strings.CutPrefix(left, "library "); ok {
			r.libraries = append(r.libraries, library{path: strings.TrimSpace(path), users: strings.Fields(right)})
			continue
		}
		if err := r.addLayer(left, strings.Fields(right)); err != nil {
			return nil, fmt.Errorf("line %d: %w", number, err)
		}
	}
	return r, nil
}

func (r *Rules) addLayer(name string, imports []string) error {
	if r.layer(name) >= 0 {
		return fmt.Errorf("%s has two lines", name)
	}
	for _, pattern := range imports {
		pattern = strings.TrimSuffix(pattern, testsSuffix)
		if !slices.ContainsFunc(r.layers, func(above layer) bool { return matches(pattern, above.name) }) {
			return fmt.Errorf("%s may import %s, of which no line above tells", name, pattern)
		}
	}
	r.layers = append(r.layers, layer{name: name, imports: imports})
	return nil
}

// layer is the index of a package's line, or -1.
func (r *Rules) layer(name string) int {
	return slices.IndexFunc(r.layers, func(l layer) bool { return l.name == name })
}

// matches tells whether a pattern of layers.txt stands for a name.
func matches(pattern, name string) bool {
	base, below := strings.CutSuffix(pattern, "/*")
	return name == base || below && strings.HasPrefix(name, base+"/")
}

// matchesAny tells whether one of the patterns stands for a name; those for tests count in tests.
func matchesAny(patterns []string, name string, test bool) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		p, only := strings.CutSuffix(p, testsSuffix)
		return matches(p, name) && (test || !only)
	})
}

// Check says what is wrong with one import of a package, "" when nothing is. Both are as Go has them, the package
// without the module's path; test is set for an import in a test file.
func (r *Rules) Check(pkg, imported string, test bool) string {
	own := r.layer(pkg)
	if own < 0 {
		return fmt.Sprintf("package %s has no line in layers.txt", pkg)
	}
	inside, ok := strings.CutPrefix(imported, Module+"/")
	if !ok {
		return r.checkLibrary(pkg, imported, test)
	}
	above := r.layer(inside)
	switch {
	case above < 0:
		return fmt.Sprintf("package %s has no line in layers.txt", inside)
	case test && (inside == pkg || inside == pkg+"/"+path.Base(pkg)+"test"): // an external test, the package's own helper for tests
		return ""
	case !matchesAny(r.layers[own].imports, inside, test):
		return fmt.Sprintf("%s must not import %s", pkg, inside)
	case above >= own:
		return fmt.Sprintf("%s must not import %s: it lies below", pkg, inside)
	}
	return ""
}

// checkLibrary checks an import from outside the module. Paths without a dot in their first element are the
// standard library's.
func (r *Rules) checkLibrary(pkg, imported string, test bool) string {
	host, _, _ := strings.Cut(imported, "/")
	if !strings.Contains(host, ".") {
		return ""
	}
	for _, l := range r.libraries {
		if imported != l.path && !strings.HasPrefix(imported, l.path+"/") {
			continue
		}
		if matchesAny(l.users, pkg, test) || test && slices.Contains(l.users, testsOnly) {
			return ""
		}
		return fmt.Sprintf("%s must not import %s, which is for %s", pkg, imported, strings.Join(l.users, ", "))
	}
	return fmt.Sprintf("%s imports %s, a library that layers.txt does not name", pkg, imported)
}
