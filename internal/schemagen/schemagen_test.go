package schemagen

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Whoever edits a schema or the generator must run go generate.
func TestGeneratedCodeIsCurrent(t *testing.T) {
	for dir, pkg := range map[string]string{
		"../../kraft/metadata": "metadata", "../../groupcoord/schema": "schema", "../../txncoord/schema": "schema",
	} {
		want := generate(t, dir, pkg)
		have, err := filepath.Glob(filepath.Join(dir, "*_gen*.go"))
		if err != nil {
			t.Fatal(err)
		}
		if len(have) != len(want) {
			t.Errorf("%s: %d generated files, want %d", dir, len(have), len(want))
		}
		for name, code := range want {
			if got, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !bytes.Equal(got, code) {
				t.Errorf("%s/%s is not what the generator makes (%v); run go generate", dir, name, err)
			}
		}
	}
}

func generate(t *testing.T, dir, pkg string) map[string][]byte {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "messages", "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s: %v %v", dir, paths, err)
	}
	out := map[string][]byte{}
	var files []*File
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		f, err := Parse(strings.TrimSuffix(filepath.Base(path), ".txt"), text)
		if err != nil {
			t.Fatal(err)
		}
		if out[f.Name+"_gen.go"], err = Generate(f, pkg); err != nil {
			t.Fatal(err)
		}
		if out[f.Name+"_json_gen.go"], err = GenerateJSON(f, pkg); err != nil {
			t.Fatal(err)
		}
		files = append(files, f)
	}
	if out["registry_gen.go"], out["registry_gen_test.go"], err = Registry(files, pkg); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestSchemaMistakesAreNamedWithTheirLine(t *testing.T) {
	const message = "record R key=1 versions=0-2 flexible=0+\n"
	for text, want := range map[string]string{
		"\tX int32":                                        "line 1: field X outside a message",
		"nonsense":                                         "line 1: not understood",
		"thing X key=1":                                    `unknown kind "thing"`,
		"record R versions=0 flexible=none":                "has no key",
		"record R key=a":                                   "line 1",
		"record R key=1 versions=x":                        "line 1",
		"record R key=1 shade=red":                         `unknown attribute "shade=red"`,
		"struct S":                                         "before any message",
		message + message:                                  "line 2: R twice",
		message + "\tX":                                    `line 2: field "X" has no type`,
		message + "\tX strange":                            `line 2: R.X: unknown type "strange"`,
		message + "\tX int32 in x":                         "field X",
		message + "\tX int32 tag":                          `"tag" without value`,
		message + "\tX int32 shade red":                    `unknown attribute "shade"`,
		message + "\tX int32?":                             "a int32 cannot be null",
		message + "\tX int32 default null":                 "cannot be null",
		message + "\tX []int32 default 1":                  "of an array or struct",
		"data D versions=0 flexible=none\n\tX int32 tag 0": "without flexible versions",
		message + "struct S\n\tX int32\ndata D versions=0 flexible=none\n\tS S":                   "S belongs to R",
		"record A key=1 versions=0 flexible=none\nrecord B key=1 versions=0 flexible=none\n":      "A and B have the same key",
		"key A key=1 versions=0 flexible=none\nkey B key=1 versions=0 flexible=none\n\tX int32\n": "A and B have the same key",
	} {
		f, err := Parse("f", []byte(text))
		if err == nil {
			_, _, err = Registry([]*File{f}, "p")
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %s", text, err, want)
		}
	}
}

func TestSchemaIsParsedWithItsAttributes(t *testing.T) {
	f, err := Parse("f", []byte(`# About the file.

registry Things
# V is documented.
value V key=7 versions=1-3 flexible=2+
	A int32 in 2+ default -1 ignorable
	B []P? tag 4
struct P
	C string? in 1-2 default null
`))
	if err != nil {
		t.Fatal(err)
	}
	m := f.Messages[0]
	if m.Key != 7 || m.Registry != "Things" || m.Kind != KindValue || m.Doc[0] != "V is documented." || m.flexible() != "flexible" {
		t.Errorf("%+v", m)
	}
	a, b, c := m.Fields[0], m.Fields[1], f.Structs[1].Fields[0]
	if !a.Ignorable || a.Default != "-1" || a.versionGuard(m) != "version >= 2" || a.Tag != -1 {
		t.Errorf("%+v", a)
	}
	if b.Tag != 4 || !b.Type.Array || !b.Type.Nullable || b.Type.Struct != f.Structs[1] || b.defaultValue() != "[]P{}" {
		t.Errorf("%+v", b)
	}
	if c.versionGuard(m) != "version <= 2" || c.Type.goType() != "*string" || c.defaultValue() != "" {
		t.Errorf("%+v", c)
	}
}

func TestMessagesWithTheSameVersionsShareParts(t *testing.T) {
	f, err := Parse("f", []byte("data A versions=0-1 flexible=1+\n\tX P\nstruct P\n\tY int32\ndata B versions=0-1 flexible=1+\n\tX P\n\tZ []P\n"))
	if err != nil {
		t.Fatal(err)
	}
	if b := f.Messages[1].Fields; len(f.Structs) != 3 || b[0].Type.Struct != f.Structs[1] || b[1].Type.Struct != f.Structs[1] {
		t.Errorf("%+v", b)
	}
	for _, versions := range []string{"versions=0 flexible=1+", "versions=0-1 flexible=0+", "versions=0-1 flexible=1+ extra=parts"} {
		text := "data A versions=0-1 flexible=1+\n\tX P\nstruct P\n\tY int32\ndata B " + versions + "\n\tX P\n"
		if _, err := Parse("f", []byte(text)); err == nil || !strings.Contains(err.Error(), "P belongs to A") {
			t.Errorf("%s: %v", versions, err)
		}
	}
}

func TestGoNamesSpellInitialismsInCapitals(t *testing.T) {
	for name, want := range map[string]string{
		"brokerId": "BrokerID", "partitionIds": "PartitionIDs", "TopicId": "TopicID", "VoterDirectoryId": "VoterDirectoryID",
		"Isr": "ISR", "LastKnownElr": "LastKnownELR", "IdleTime": "IdleTime", "Identity": "Identity", "RackIdentity": "RackIdentity",
		"IdAndIsr": "IDAndISR", "Provider": "Provider", "ClientIdHash": "ClientIDHash",
	} {
		if got := goName(name); got != want {
			t.Errorf("%s: %s, want %s", name, got, want)
		}
	}
}

func TestSmallestEncodingCountsOnlyFieldsOfAllVersions(t *testing.T) {
	f, err := Parse("f", []byte(`data D versions=0-2 flexible=none
	S []E
struct E
	A int64
	B string
	C []int32 in 1+
	D uuid
	F []int16
`))
	if err != nil {
		t.Fatal(err)
	}
	if got := f.Messages[0].Fields[0].Type.elem().minBytes(f.Messages[0]); got != 8+2+16+4 {
		t.Errorf("%d bytes", got)
	}
}
