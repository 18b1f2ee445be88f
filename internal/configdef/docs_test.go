package configdef

import (
	"strings"
	"testing"
)

func TestEveryKeyIsDocumentedInASentence(t *testing.T) {
	total := 0
	for name, table := range map[string]*Table{"broker": Broker(), "topic": Topic(), "group": Group(), "clientmetrics": ClientMetrics()} {
		total += table.Len()
		for k := range table.All() {
			switch {
			case k.Doc == "":
				t.Errorf("%s: %s has no line in docs.tsv", name, k.Name)
			case !strings.HasSuffix(k.Doc, ".") || strings.ToUpper(k.Doc[:1]) != k.Doc[:1] || strings.ContainsAny(k.Doc, "\t|"):
				t.Errorf("%s: the documentation of %s is no plain sentence: %q", name, k.Name, k.Doc)
			}
		}
	}
	if got := len(docs()); got != total {
		t.Errorf("docs.tsv documents %d keys, the tables have %d", got, total)
	}
}

func TestDocumentationLinesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for line := range strings.Lines(docsTSV) {
		fields := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(fields) != 3 {
			t.Errorf("%d columns, want table, key and text: %q", len(fields), line)
			continue
		}
		if key := fields[0] + " " + fields[1]; seen[key] {
			t.Errorf("%s is documented twice", key)
		} else {
			seen[key] = true
		}
	}
}
