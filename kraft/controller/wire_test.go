package controller

import (
	"encoding/hex"
	"os"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// frames reads a golden file: channel, client id, request and response in hex, with their headers.
func frames(t *testing.T, name string) [][2][]byte {
	t.Helper()
	file, err := os.ReadFile("testdata/wire/" + name)
	if err != nil {
		t.Fatal(err)
	}
	var out [][2][]byte
	for line := range strings.SplitSeq(strings.TrimSpace(string(file)), "\n") {
		f := strings.Split(line, "\t")
		req, err1 := hex.DecodeString(f[2])
		resp, err2 := hex.DecodeString(f[3])
		if err1 != nil || err2 != nil {
			t.Fatalf("%v, %v", err1, err2)
		}
		out = append(out, [2][]byte{req, resp})
	}
	return out
}

// requestBody cuts off a header of version 2.
func requestBody(frame []byte) []byte {
	size := int(frame[8])<<8 | int(frame[9])
	return frame[10+size+1:]
}

func TestCreateTopicsAnswersWithTheConfigsThatKafkaLists(t *testing.T) {
	for _, f := range frames(t, "create_topics_v7.tsv") {
		req := kmsg.NewPtrCreateTopicsRequest()
		req.Version = 7
		if err := req.ReadFrom(requestBody(f[0])); err != nil {
			t.Fatal(err)
		}
		want := kmsg.NewPtrCreateTopicsResponse()
		want.Version = 7
		if err := want.ReadFrom(f[1][5:]); err != nil {
			t.Fatal(err)
		}
		w := newWorld()
		// The golden's broker had these in server.properties.
		w.static["log.index.size.max.bytes"] = "4096"
		w.start(1)
		got := w.do(req).Response.(*kmsg.CreateTopicsResponse)
		compareTopics(t, &got.Topics[0], &want.Topics[0])
	}
}

func compareTopics(t *testing.T, got, want *kmsg.CreateTopicsResponseTopic) {
	t.Helper()
	if got.Topic != want.Topic || got.NumPartitions != want.NumPartitions ||
		got.ReplicationFactor != want.ReplicationFactor || got.ErrorCode != want.ErrorCode {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if len(got.Configs) != len(want.Configs) {
		t.Errorf("%d configs, want %d", len(got.Configs), len(want.Configs))
	}
	byName := make(map[string]kmsg.CreateTopicsResponseTopicConfig)
	for _, c := range got.Configs {
		byName[c.Name] = c
	}
	for i, c := range want.Configs {
		g, ok := byName[c.Name]
		switch {
		case !ok:
			t.Errorf("config %s is missing", c.Name)
		case got.Configs[min(i, len(got.Configs)-1)].Name != c.Name:
			t.Errorf("config %d is %s, want %s", i, got.Configs[i].Name, c.Name)
		case show(g.Value) != show(c.Value) || g.Source != c.Source || g.IsSensitive != c.IsSensitive ||
			g.ReadOnly != c.ReadOnly:
			t.Errorf("%s is %s from %d, want %s from %d", c.Name, show(g.Value), g.Source, show(c.Value), c.Source)
		}
	}
}

func show(s *string) string {
	if s == nil {
		return "null"
	}
	return *s
}
