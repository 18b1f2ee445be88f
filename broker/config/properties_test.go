package config

import (
	"errors"
	"fmt"
	"strings"
	"testing"
)

// Kafka 4.4's own answers to these files, asked with Utils.loadProps.
func TestPropertiesReadAsInJava(t *testing.T) {
	for _, c := range []struct{ file, want string }{
		{"a=1\nb : 2\nc 3\nd\t=\t4  \n", "1 a=1|2 b=2|3 c=3|4 d=4  "},
		{"a=1\rb=2\r\nc=3\r", "1 a=1|2 b=2|3 c=3"},
		{"# note \\\na=1\n  ! another\n\n \t\nb=2", "2 a=1|6 b=2"},
		{"num.parti\\\n   tions=7\n", "1 num.partitions=7"},
		{"a=x,\\\r\n  y\nb=1\n", "1 a=x,y|3 b=1"},
		{"a=\\\n\n5\n", "1 a=|3 5="},
		{"a=x\\\n#b\n", "1 a=x#b"},
		{"a=x\\\\\nb=1\n", "1 a=x\\|2 b=1"},
		{"a=x\\", "1 a=x"},
		{"=x\n", "1 =x"},
		{"a\\=b\\:c\\ d=1", "1 a=b:c d=1"},
		{"a\f=\f5", "1 a=5"},
		{"a == b", "1 a== b"},
		{"a=\\t\\u00e9\\ x\\q\\uD83D\\uDE00", "1 a=\té xq😀"},
		{"log.dirs=d\xc3\xa9", "1 log.dirs=dÃ©"},
		{"log.dirs=d\xe9", "1 log.dirs=dé"},
		{"\xef\xbb\xbfa=1", "1 a=1"},
		{"a=1\na=2", "1 a=1|2 a=2"},
		{"\\\na=1", "1 a=1"},
		{"\\\n", ""},
		{"", ""},
	} {
		assignments, err := parseProperties("f", []byte(c.file))
		if err != nil {
			t.Errorf("%q: %v", c.file, err)
			continue
		}
		var got []string
		for _, a := range assignments {
			got = append(got, fmt.Sprintf("%d %s=%s", a.line, a.key, a.value))
		}
		if s := strings.Join(got, "|"); s != c.want {
			t.Errorf("%q: %q, want %q", c.file, s, c.want)
		}
	}
}

func TestMalformedEscapesNameFileAndLine(t *testing.T) {
	for _, file := range []string{"a=1\nfoo=\\u00zz\n", "a=1\nfoo=\\u00", "a=1\nfoo=C:\\users\n"} {
		_, err := parseProperties("server.properties", []byte(file))
		var e *Error
		if !errors.As(err, &e) || e.Where != "server.properties:2" || e.Key != "foo" || !strings.Contains(e.Message, "four hexadecimal digits") {
			t.Errorf("%q: %v", file, err)
		}
	}
}

func TestValuesThatAnEditorWroteInUTF8AreWarnedOf(t *testing.T) {
	c, warnings := mustLoad(t, combined+"broker.rack=caf\xc3\xa9\nmy.plugin=caf\xc3\xa9\nssl.key.password=p\xc3\xa9ss\n")
	if c.Node.Rack != "cafÃ©" {
		t.Errorf("rack %q", c.Node.Rack)
	}
	var got []string
	for _, w := range warnings {
		if strings.Contains(w.Message, "ISO 8859-1") {
			got = append(got, w.String())
		}
	}
	if len(got) != 2 || !strings.HasPrefix(got[0], "server.properties:8: broker.rack: ") || !strings.Contains(got[0], "cafÃ©") || strings.Contains(got[1], "ss\"") {
		t.Errorf("warnings %q", got)
	}
}
