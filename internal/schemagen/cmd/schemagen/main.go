// Command schemagen writes the Go code of the message schemas in a directory: NAME_gen.go and NAME_json_gen.go
// for each NAME.txt, and registry_gen.go, into the current directory.
//
//	schemagen -package metadata messages
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"gregor/internal/schemagen"
)

func main() {
	pkg := flag.String("package", "", "name of the generated package")
	flag.Parse()
	if err := run(*pkg, flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "schemagen:", err)
		os.Exit(1)
	}
}

func run(pkg string, args []string) error {
	if pkg == "" || len(args) != 1 {
		return errors.New("usage: schemagen -package NAME DIR")
	}
	paths, err := filepath.Glob(filepath.Join(args[0], "*.txt"))
	if err != nil {
		return err
	}
	var files []*schemagen.File
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		f, err := schemagen.Parse(strings.TrimSuffix(filepath.Base(path), ".txt"), text)
		if err != nil {
			return err
		}
		code, err := schemagen.Generate(f, pkg)
		if err != nil {
			return err
		}
		if err := os.WriteFile(f.Name+"_gen.go", code, 0o644); err != nil {
			return err
		}
		if code, err = schemagen.GenerateJSON(f, pkg); err != nil {
			return err
		}
		if err := os.WriteFile(f.Name+"_json_gen.go", code, 0o644); err != nil {
			return err
		}
		files = append(files, f)
	}
	code, test, err := schemagen.Registry(files, pkg)
	if err != nil {
		return err
	}
	if err := os.WriteFile("registry_gen.go", code, 0o644); err != nil {
		return err
	}
	return os.WriteFile("registry_gen_test.go", test, 0o644)
}
