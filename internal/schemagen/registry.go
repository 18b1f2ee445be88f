package schemagen

import (
	"bytes"
	"cmp"
	"fmt"
	"go/format"
	"slices"
)

// Registry returns Go source with a constructor by API key or record type for each registry and for metadata records,
// and the source of a test helper that lists all messages by name.
func Registry(files []*File, pkg string) (code, test []byte, err error) {
	groups := map[string][]*Message{} // function name to messages
	var all []*Message
	for _, f := range files {
		for _, m := range f.Messages {
			all = append(all, m)
			switch m.Kind {
			case KindRecord:
				groups["newRecord"] = append(groups["newRecord"], m)
			case KindKey:
				groups["new"+m.Registry+"Key"] = append(groups["new"+m.Registry+"Key"], m)
			case KindValue:
				groups["new"+m.Registry+"Value"] = append(groups["new"+m.Registry+"Value"], m)
			case KindData:
			}
		}
	}
	names := make([]string, 0, len(groups))
	for n := range groups {
		names = append(names, n)
	}
	slices.Sort(names)
	var out bytes.Buffer
	fmt.Fprintf(&out, header, "*.txt", pkg)
	for _, n := range names {
		if err := registryFunc(&out, n, groups[n]); err != nil {
			return nil, nil, err
		}
	}
	if code, err = format.Source(out.Bytes()); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(all, func(a, b *Message) int { return cmp.Compare(a.Name, b.Name) })
	out.Reset()
	fmt.Fprintf(&out, header, "*.txt", pkg)
	fmt.Fprintf(&out, "import \"gregor/protocol/wire\"\n\n")
	fmt.Fprintf(&out, "// allMessages makes an empty message of every kind by Kafka's name.\nvar allMessages = map[string]func() wire.Message{\n")
	for _, m := range all {
		fmt.Fprintf(&out, "%q: func() wire.Message { return New%s() },\n", m.Name, m.Name)
	}
	fmt.Fprintf(&out, "}\n")
	test, err = format.Source(out.Bytes())
	return code, test, err
}

func registryFunc(out *bytes.Buffer, name string, messages []*Message) error {
	slices.SortFunc(messages, func(a, b *Message) int { return cmp.Compare(a.Key, b.Key) })
	result, arg := "Record", "apiKey"
	switch messages[0].Kind {
	case KindKey:
		result, arg = "Key", "recordType"
	case KindValue:
		result, arg = "Value", "recordType"
	case KindRecord, KindData:
	}
	fmt.Fprintf(out, "// %s returns an empty message for %s, nil if there is none.\n", name, arg)
	fmt.Fprintf(out, "func %s(%s int16) %s {\nswitch %s {\n", name, arg, result, arg)
	for i, m := range messages {
		if i > 0 && messages[i-1].Key == m.Key {
			return fmt.Errorf("%s and %s have the same key", messages[i-1].Name, m.Name)
		}
		fmt.Fprintf(out, "case %d:\nreturn &%s{}\n", m.Key, m.Name)
	}
	fmt.Fprintf(out, "}\nreturn nil\n}\n\n")
	return nil
}
