package broker

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"gregor/broker/api"
	"gregor/broker/config"
	"gregor/protocol"
)

var rewriteDocs = flag.Bool("rewrite-docs", false, "write docs/apis.md anew")

// apiFacts are what Kafka 4.4.0 advertises.
//
//go:embed testdata/api-versions.tsv
var apiFacts string

// advertised are the versions of one API that Kafka lists, "-" where it does not.
type advertised struct{ key, name, broker, controller string }

func kafkasAPIs(t *testing.T) []advertised {
	t.Helper()
	var out []advertised
	for line := range strings.Lines(apiFacts) {
		if strings.HasPrefix(line, "#") {
			continue
		}
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if len(f) != 4 {
			t.Fatalf("%d columns: %q", len(f), line)
		}
		out = append(out, advertised{f[0], f[1], f[2], f[3]})
	}
	return out
}

// fullTable is the table of a node that is broker and controller.
func fullTable(t *testing.T) *api.Table {
	t.Helper()
	cfg, _, err := config.Load(config.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return api.NewTable(api.Deps{
		Node: api.Node{Config: func() *config.Config { return cfg }}, Broker: true,
		ControllerHandle: func(context.Context, *api.Call) kmsg.Response { return nil }, ControllerKeys: controllerKeys(),
	})
}

// versions is the range that a listener of the node advertises for an API, "-" where it does not serve it.
func versions(table *api.Table, key int16, controller bool) string {
	e := table.Lookup(key, controller)
	if e == nil || e.Private {
		return "-"
	}
	return fmt.Sprintf("%d-%d", e.AdvertisedMin, e.MaxVersion)
}

func TestWhatIsServedIsServedAtKafkasVersions(t *testing.T) {
	table := fullTable(t)
	served := 0
	for _, k := range kafkasAPIs(t) {
		var key int16
		if _, err := fmt.Sscan(k.key, &key); err != nil {
			t.Fatal(err)
		}
		if got := protocol.APIName(key); got != k.name {
			t.Errorf("key %d is %s, Kafka calls it %s", key, got, k.name)
		}
		for _, side := range []struct {
			name       string
			controller bool
			want       string
		}{{"broker", false, k.broker}, {"controller", true, k.controller}} {
			got := versions(table, key, side.controller)
			if got != "-" {
				served++
			}
			if got != "-" && got != side.want {
				t.Errorf("%s on %s listeners: versions %s, Kafka has %s", k.name, side.name, got, side.want)
			}
		}
	}
	if served < 50 {
		t.Errorf("only %d APIs are served: the table is not what it should be", served)
	}
}

const apisHead = `# APIs

Every request of Kafka 4.4.0 and what Gregor does with it: the versions that it serves on the listeners for clients and
brokers and on those for controllers. They are Kafka's own, always all of them. *not yet* means that Kafka serves the
API there and this version of Gregor does not, and does not advertise it either: such a request closes the connection,
as any unknown one does in Kafka.

This page is made from the table that dispatches requests, by ` + "`go test ./broker -run PageOf -rewrite-docs`" + `.

| key | API | clients and brokers | controllers |
|---:|---|---|---|
`

func apisPage(t *testing.T) string {
	t.Helper()
	table := fullTable(t)
	var b strings.Builder
	b.WriteString(apisHead)
	counts := [2]int{}
	for _, k := range kafkasAPIs(t) {
		var key int16
		if _, err := fmt.Sscan(k.key, &key); err != nil {
			t.Fatal(err)
		}
		cells := [2]string{}
		for i, kafka := range []string{k.broker, k.controller} {
			switch got := versions(table, key, i == 1); {
			case got != "-":
				cells[i] = got
				counts[i]++
			case kafka != "-":
				cells[i] = "*not yet*"
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", k.key, k.name, cells[0], cells[1])
	}
	fmt.Fprintf(&b, "\nServed: %d APIs for clients and brokers, %d for controllers. GetTelemetrySubscriptions and PushTelemetry are\n"+
		"served by Kafka only where a plugin receives client telemetry, so their columns are empty.\n", counts[0], counts[1])
	return b.String()
}

func TestThePageOfAPIsIsUpToDate(t *testing.T) {
	const page = "../docs/apis.md"
	want := apisPage(t)
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
		t.Errorf("%s does not fit the table of APIs; write it anew with: go test ./broker -run PageOf -rewrite-docs", page)
	}
}
