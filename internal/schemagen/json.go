package schemagen

import (
	"bytes"
	"fmt"
	"go/format"
	"strings"
)

// GenerateJSON returns the Go source of the methods that print the messages of a schema file as Kafka's tools do.
func GenerateJSON(f *File, pkg string) ([]byte, error) {
	e := &emitter{f: f}
	for _, s := range f.Structs {
		if s.isMessage() {
			e.p(`
// AppendJSON appends the message to dst as Kafka prints it in the given version: fields that the version lacks and
// tagged fields with default values are left out, and so are unknown tagged fields.
func (m *%s) AppendJSON(dst []byte, version int16) []byte {
	j := wire.NewJSON(dst)
	m.json(&j, version)
	return j.Result()
}`, s.Name)
		}
		e.jsonMethod(s)
	}
	var out bytes.Buffer
	fmt.Fprintf(&out, header, f.Name+".txt", pkg)
	if strings.Contains(e.String(), "protocol.") {
		out.WriteString("import (\n\t\"gregor/protocol\"\n\t\"gregor/protocol/wire\"\n)\n")
	} else {
		out.WriteString("import \"gregor/protocol/wire\"\n")
	}
	out.Write(e.Bytes())
	src, err := format.Source(out.Bytes())
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", f.Name, err, out.Bytes())
	}
	return src, nil
}

func (e *emitter) jsonMethod(s *Struct) {
	b := &emitter{f: e.f}
	b.p("j.Begin('{')")
	for i := range s.Fields {
		f := &s.Fields[i]
		cond := f.versionGuard(s.Message)
		if f.Tag >= 0 {
			if cond != "" {
				cond += " && "
			}
			cond += f.isSet("m." + goName(f.Name))
		}
		b.guarded(cond, func() {
			b.p("j.Name(%q)", strings.ToLower(f.Name[:1])+f.Name[1:])
			b.jsonField(f)
		})
	}
	b.p("j.End('}')")
	body := b.String()
	receiver, version := "_", "_"
	if strings.Contains(body, "m.") {
		receiver = "m"
	}
	if strings.Contains(body, "version") {
		version = "version"
	}
	e.p("\nfunc (%s *%s) json(j *wire.JSON, %s int16) {\n%s}", receiver, s.Name, version, body)
}

func (e *emitter) jsonField(f *Field) {
	t, x := f.Type, "m."+goName(f.Name)
	if t.Nullable {
		e.p("if %s == nil {\nj.Null()\n} else {", x)
		if t.Base == "string" && !t.Array {
			x = "*" + x
		}
	}
	if t.Array {
		e.p("j.Begin('[')\nfor i := range %s {\n%s\n}\nj.End(']')", x, t.elem().jsonExpr(x+"[i]"))
	} else {
		e.p("%s", t.jsonExpr(x))
	}
	if t.Nullable {
		e.p("}")
	}
}

func (t Type) jsonExpr(x string) string {
	switch {
	case t.Struct != nil:
		return x + ".json(j, version)"
	case t.Base == "bytes":
		return fmt.Sprintf("j.Blob(%s)", x)
	case t.Base == "string" || t.Base == "bool" || t.Base == "uuid" || t.Base == "float64":
		return fmt.Sprintf("j.%s(%s)", method(t.Base), x)
	case t.Base == "int64":
		return fmt.Sprintf("j.Int(%s)", x)
	default:
		return fmt.Sprintf("j.Int(int64(%s))", x)
	}
}
