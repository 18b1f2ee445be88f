package checkpoint

import (
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestUnknownKeysSurviveARewrite(t *testing.T) {
	m, err := parseMetaProperties([]byte("# mine\nversion=1\nnode.id=7\nrack\\ name : left \\= right\\u00e9\\\n   continued\ncluster.id=c\nempty\nbroker.id=3\n"))
	must(t, err)
	want := []Property{{"rack name", "left = right\u00e9continued"}, {"empty", ""}, {"broker.id", "3"}}
	if !slices.Equal(m.Extra, want) || m.NodeID != 7 || m.ClusterID != "c" {
		t.Fatalf("%+v", m)
	}
	again, err := parseMetaProperties(m.format(time.Unix(0, 0)))
	must(t, err)
	if !slices.Equal(again.Extra, want) || again.NodeID != m.NodeID || again.DirectoryID != m.DirectoryID {
		t.Fatalf("%+v", again)
	}
}

func TestVersionZeroMayLackEverything(t *testing.T) {
	m, err := parseMetaProperties([]byte("broker.id=2\n"))
	must(t, err)
	if m.Version != 0 || m.NodeID != 2 || m.ClusterID != "" {
		t.Fatalf("%+v", m)
	}
	m, err = parseMetaProperties(nil)
	must(t, err)
	if m.Version != 0 || m.NodeID != -1 {
		t.Fatalf("%+v", m)
	}
	if got := string(MetaProperties{NodeID: 2}.format(time.Unix(0, 0))); got != "#\n#Thu Jan 01 00:00:00 UTC 1970\nbroker.id=2\nversion=0\n" {
		t.Fatal(got)
	}
}

func TestMalformedMetaPropertiesNameFileAndLine(t *testing.T) {
	for contents, line := range map[string]int{
		"version=2\n":                                               1,
		"\n\nversion=one\n":                                         3,
		"version=1\ncluster.id=c\n":                                 1,
		"version=1\nnode.id=1\n":                                    1,
		"version=1\ncluster.id=c\nnode.id=one\n":                    3,
		"version=1\ncluster.id=c\nnode.id=\n":                       3,
		"version=1\ncluster.id=c\nnode.id=1\n#\ndirectory.id=short": 5,
		"a=b\\\nc\nversion=1\ncluster.id=\\u12\n":                   4,
		"cluster.id=\\uzzzz\n":                                      1,
		"\\u1=x\n":                                                  1,
	} {
		_, err := ReadMetaProperties(given(t, []byte(contents)), "/f")
		wantSyntax(t, err, line)
	}
}

// TestPropertiesAreReadAsJavaReadsThem lists what java.util.Properties.load makes of lines.
func TestPropertiesAreReadAsJavaReadsThem(t *testing.T) {
	for contents, want := range map[string][]Property{
		"a=b":                     {{"a", "b"}},
		"  a  =  b  ":             {{"a", "b  "}},
		"a:b":                     {{"a", "b"}},
		"a b":                     {{"a", "b"}},
		"a = = b":                 {{"a", "= b"}},
		"a":                       {{"a", ""}},
		"=b":                      {{"", "b"}},
		"#a=b\n!c=d\n e=f":        {{"e", "f"}},
		"#a\\\nb=c":               {{"b", "c"}},
		"a=b\\\r\n\t c":           {{"a", "bc"}},
		"a=b\\\\\nc=d":            {{"a", "b\\"}, {"c", "d"}},
		"a=b\rc=d\r\n\r\ne=f\n":   {{"a", "b"}, {"c", "d"}, {"e", "f"}},
		"a\\=b\\:c=d\\te\\q":      {{"a=b:c", "d\teq"}},
		"a=\xe9":                  {{"a", "é"}},
		"a=\\u20AC\\uD83D\\uDE00": {{"a", "€😀"}},
		"a=b\\":                   {{"a", "b"}},
		"\\#a=1":                  {{"#a", "1"}},
		"a=\\\n":                  {{"a", ""}},
		"a=1\na=2":                {{"a", "1"}, {"a", "2"}},
		"\f a\t\f=\f 1":           {{"a", "1"}},
		"a=x \\\n   \\\n   y":     {{"a", "x y"}},
		"a\\ b\\\\=c":             {{"a b\\", "c"}},
	} {
		props, err := parseProperties([]byte(contents))
		must(t, err)
		var got []Property
		for _, p := range props {
			got = append(got, p.Property)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%q: %q, want %q", contents, got, want)
		}
	}
}

func TestLastOfARepeatedKeyCounts(t *testing.T) {
	m, err := parseMetaProperties([]byte("broker.id=1\nbroker.id=2\nx=1\nx=2\n"))
	must(t, err)
	if m.NodeID != 2 || !slices.Equal(m.Extra, []Property{{"x", "2"}}) {
		t.Fatalf("%+v", m)
	}
}

func TestAnyPropertyRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := MetaProperties{
			Version: 1, NodeID: rapid.Int32Min(0).Draw(t, "node"), ClusterID: rapid.String().Draw(t, "cluster"),
			DirectoryID: [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "dir")),
			Extra:       []Property{{"x" + rapid.String().Draw(t, "key"), rapid.String().Draw(t, "value")}},
		}
		got, err := parseMetaProperties(want.format(time.Unix(0, 0)))
		if err != nil {
			t.Fatal(err)
		}
		if got.NodeID != want.NodeID || got.ClusterID != want.ClusterID || got.DirectoryID != want.DirectoryID || !slices.Equal(got.Extra, want.Extra) {
			t.Fatalf("%+v became %+v", want, got)
		}
	})
}
