package config

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"gregor/internal/configdef"
)

var rewriteDocs = flag.Bool("rewrite-docs", false, "write docs/configs.md anew")

const configsHead = `# Configuration

Gregor reads Kafka's server.properties, and knows every key of Kafka 4.4.0 with its type, default and valid values. An
invalid value stops the start with an error that names the file, the line, the key and what is valid. An unknown key is a
warning with the nearest known name, or with ` + "`--strict`" + ` an error. As in Kafka, keys are
case-sensitive and the file is ISO 8859-1, with ` + "`\\uXXXX`" + ` for all other characters.

What Gregor does with a key is one of these:

- **acts**: it does what the key says.
- **warns**: it does not act on the key yet, or has no need to, and it is safe to go on without: one warning at the start
  when the key is set to something other than its default.
- **refuses**: it does not act on the key yet, and to go on without it would endanger data or security: the node does not
  start when the key is set to something other than its default.

Listeners with SASL or TLS are refused as well, whatever their keys. The column *update* says whether the key can be
altered while the broker runs: for each broker, for the cluster as a whole as well, or not at all.

This page is made from the tables that the broker itself uses, by ` + "`go test ./broker/config -run PageOf -rewrite-docs`" + `.
`

// cell makes a text fit into a Markdown table.
func cell(text string) string {
	return strings.NewReplacer("|", "\\|", "<", "&lt;", "*", "\\*").Replace(text)
}

func defaultOf(k *configdef.Key) string {
	switch {
	case k.Required:
		return "*(required)*"
	case k.Default == nil:
		return "*(none)*"
	case *k.Default == "":
		return "*(empty)*"
	}
	return "`" + *k.Default + "`"
}

func configsPage(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	b.WriteString(configsHead)
	updates := map[configdef.UpdateMode]string{
		configdef.ReadOnly: "no", configdef.PerBroker: "broker", configdef.ClusterWide: "cluster", configdef.DynamicOnly: "only so",
	}
	counts := map[string]int{}
	var rows strings.Builder
	for k := range configdef.Broker().All() {
		if k.Internal && strings.HasPrefix(k.Name, "internal.") {
			continue
		}
		what := "acts"
		if s, listed := statusOf(k.Name); listed {
			verb, ok := map[string]string{"unused": "warns", "unsafe": "refuses", "default": "warns"}[s.kind]
			if !ok {
				t.Fatalf("status.tsv: unknown kind %q of %s", s.kind, k.Name)
			}
			counts[verb]++
			what = "**" + verb + "**: " + cell(s.reason)
		} else {
			counts[what]++
		}
		fmt.Fprintf(&rows, "| `%s` | %s | %s | %s | %s |\n", k.Name, cell(k.Doc), defaultOf(k), updates[k.UpdateMode], what)
	}
	fmt.Fprintf(&b, "\n## Brokers and controllers\n\nGregor acts on %d keys, warns of %d and refuses %d.\n\n", counts["acts"], counts["warns"], counts["refuses"])
	b.WriteString("| key | meaning | default | update | Gregor |\n|---|---|---|---|---|\n")
	b.WriteString(rows.String())
	for _, section := range []struct {
		title, intro string
		table        *configdef.Table
	}{
		{"Topics", "Where a topic does not set a key, its broker's key decides.", configdef.Topic()},
		{"Groups", "Where a group does not set a key, the broker's key decides.", configdef.Group()},
		{"Client metrics", "Subscriptions are stored; without a receiver for client telemetry no client is asked for any.", configdef.ClientMetrics()},
	} {
		fmt.Fprintf(&b, "\n## %s\n\n%s\n\n| key | meaning | default | broker's key |\n|---|---|---|---|\n", section.title, section.intro)
		for k := range section.table.All() {
			if k.Internal && strings.HasPrefix(k.Name, "internal.") {
				continue
			}
			var synonyms []string
			for _, s := range k.Synonyms {
				synonyms = append(synonyms, "`"+s.Name+"`")
			}
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", k.Name, cell(k.Doc), defaultOf(k), strings.Join(synonyms, ", "))
		}
	}
	return b.String()
}

func TestThePageOfConfigsIsUpToDate(t *testing.T) {
	const page = "../../docs/configs.md"
	want := configsPage(t)
	if *rewriteDocs {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want {
		t.Errorf("%s does not fit the tables; write it anew with: go test ./broker/config -run PageOf -rewrite-docs", page)
	}
}

func TestEveryStatusIsOfAKeyAndAKind(t *testing.T) {
	for pattern, s := range statuses() {
		if s.kind != "unused" && s.kind != "unsafe" && s.kind != "default" || s.reason == "" {
			t.Errorf("status.tsv: %s: kind %q, reason %q", pattern, s.kind, s.reason)
		}
		base, prefix := strings.CutSuffix(pattern, "*")
		found := ignorable(base) || base == "listener.name."
		for k := range configdef.Broker().All() {
			found = found || k.Name == base || prefix && strings.HasPrefix(k.Name, base)
		}
		if !found {
			t.Errorf("status.tsv: %s stands for no key", pattern)
		}
	}
}
