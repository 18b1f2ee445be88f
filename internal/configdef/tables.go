package configdef

import (
	_ "embed" // the tables below are data files
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
)

var (
	//go:embed broker.tsv
	brokerTSV string
	//go:embed topic.tsv
	topicTSV string
	//go:embed group.tsv
	groupTSV string
	//go:embed clientmetrics.tsv
	clientMetricsTSV string
	//go:embed docs.tsv
	docsTSV string
)

// Broker is the table of broker and controller keys (server.properties, BROKER resources).
var Broker = sync.OnceValue(func() *Table { return load("broker", brokerTSV) })

// Topic is the table of topic keys (TOPIC resources); their synonyms are broker keys.
var Topic = sync.OnceValue(func() *Table { return load("topic", topicTSV) })

// Group is the table of group keys (GROUP resources, KIP-848, KIP-932, KIP-1071).
var Group = sync.OnceValue(func() *Table { return load("group", groupTSV) })

// ClientMetrics is the table of keys of CLIENT_METRICS resources (KIP-714).
var ClientMetrics = sync.OnceValue(func() *Table { return load("clientmetrics", clientMetricsTSV) })

// docs maps "table<TAB>key" to the documentation of the key.
var docs = sync.OnceValue(func() map[string]string {
	m := map[string]string{}
	for line := range strings.Lines(docsTSV) {
		table, rest, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok || strings.HasPrefix(table, "#") {
			continue
		}
		key, doc, _ := strings.Cut(rest, "\t")
		m[table+"\t"+key] = doc
	}
	return m
})

var typeNames = map[string]Type{
	"BOOLEAN": Boolean, "STRING": String, "INT": Int, "SHORT": Short, "LONG": Long,
	"DOUBLE": Double, "LIST": List, "CLASS": Class, "PASSWORD": Password,
}

var updateModes = map[string]UpdateMode{
	"read-only": ReadOnly, "per-broker": PerBroker, "cluster-wide": ClusterWide, "dynamic-only": DynamicOnly,
}

// load parses an embedded table. The tables are part of the binary: a mistake in one is a programmer
// error, which the tests of this package find.
func load(table, text string) *Table {
	t := &Table{byName: map[string]*Key{}}
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		k, err := parseLine(table, strings.Split(line, "\t"))
		if err != nil {
			panic(fmt.Sprintf("configdef: table %s: %v: %q", table, err, line))
		}
		t.keys = append(t.keys, k)
		t.byName[k.Name] = k
	}
	slices.SortFunc(t.keys, func(a, b *Key) int { return strings.Compare(a.Name, b.Name) })
	return t
}

func parseLine(table string, f []string) (*Key, error) {
	mode := ReadOnly
	if table == "broker" {
		if len(f) != 8 {
			return nil, fmt.Errorf("%d columns, want 8", len(f))
		}
		var ok bool
		if mode, ok = updateModes[f[5]]; !ok {
			return nil, fmt.Errorf("unknown update mode %q", f[5])
		}
		f = slices.Delete(slices.Clone(f), 5, 6)
	}
	if len(f) != 7 {
		return nil, fmt.Errorf("%d columns, want 7", len(f))
	}
	k := &Key{Name: f[0], Type: typeNames[f[1]], Importance: f[4], UpdateMode: mode, Internal: f[5] == "yes", valid: f[3]}
	if k.Type == Unknown {
		return nil, fmt.Errorf("unknown type %q", f[1])
	}
	k.Sensitive = k.Type == Password
	k.setDefault(f[2])
	var err error
	if k.validate, err = parseValidator(f[3], k); err != nil {
		return nil, err
	}
	k.distinct = k.Type == List && strings.Contains(k.valid, "duplicates rejected") // Kafka rejects by removing
	if k.Synonyms, err = parseSynonyms(f[6]); err != nil {
		return nil, err
	}
	k.Doc = docs()[table+"\t"+k.Name]
	return k, nil
}

func (k *Key) setDefault(text string) {
	switch text {
	case "null":
	case "(required)":
		k.Required = true
	case `""`:
		empty := ""
		k.Default = &empty
	default:
		k.Default = &text
	}
}

// parseSynonyms reads "a,b(x60000)"; "-" is none.
func parseSynonyms(text string) ([]Synonym, error) {
	if text == "-" {
		return nil, nil
	}
	var out []Synonym
	for part := range strings.SplitSeq(text, ",") {
		s := Synonym{Name: part, Factor: 1}
		if name, factor, ok := strings.Cut(part, "(x"); ok {
			n, err := strconv.ParseInt(strings.TrimSuffix(factor, ")"), 10, 64)
			if err != nil {
				return nil, fmt.Errorf("synonym %q: %w", part, err)
			}
			s = Synonym{Name: name, Factor: n}
		}
		out = append(out, s)
	}
	return out, nil
}
