package inspect

import (
	"bytes"
	"encoding/json"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"gregor/broker/config"
	"gregor/internal/recording"
	"gregor/storage/vfs"
)

// kafkasDir is a log directory that Kafka wrote (../testdata/golden/README.md), at /data of a file system in memory.
func kafkasDir(t testing.TB, name string) *vfs.Mem {
	t.Helper()
	files := recording.Node(t, os.DirFS("../testdata/golden"), os.DirFS("../../storage/testdata"), name+".tar.gz")
	m := vfs.NewMem()
	for file, b := range files {
		if !strings.HasPrefix(file, "data/") {
			continue
		}
		if err := m.MkdirAll(path.Dir("/" + file)); err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFile(m, "/"+file, b); err != nil {
			t.Fatal(err)
		}
	}
	return m
}

// contents are all files below a directory.
func contents(t testing.TB, m vfs.FS, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	entries, err := m.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name := path.Join(dir, e.Name())
		if e.IsDir() {
			maps.Copy(out, contents(t, m, name))
			continue
		}
		b, err := vfs.ReadFile(m, name)
		if err != nil {
			t.Fatal(err)
		}
		out[name] = string(b)
	}
	return out
}

func text(t *testing.T, r *Report) string {
	t.Helper()
	var b strings.Builder
	if err := r.WriteText(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestDoctorSaysWhatKafkasDirectoriesHold(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		want   []string
	}{
		"plain": {0, []string{
			"node 1 of cluster cGxhaW4tZ29sZGVuLTAwMQ, directory.id RDaUwGFN2TCrfz8iprWmCw", "last stop: clean, with the broker epoch 14",
			"21 partitions, 41 segments", "39 of format 2", "metadata.version 4.4-IV2, kraft.version 0, log end 163",
			"1 broker, 15 topics with 21 partitions, 21 of them here", "Gregor would start and serve everything",
		}},
		"kafka40":   {0, []string{"metadata.version 4.0-IV3", "features: group.version=1, metadata.version=25, transaction.version=2", "snapshot none"}},
		"compacted": {1, []string{"leftover files of deletions or cleanings would be removed", "internal topics: __transaction_state"}},
		"metadata": {1, []string{
			"kraft.version 1, log end 245, snapshot 00000000000000000243-0000000001.checkpoint", "7 replicas to be deleted",
			"7 access rules, 7 quotas, 3 SCRAM credentials, 1 delegation token", "the metadata holds 7 quotas, which are kept, but not acted on yet: no client is slowed down",
		}},
		"legacy": {1, []string{"5 of format 0, 5 of format 1", "warning: /data: the last stop was not clean: 10 logs of 23392 bytes would be read"}},
		"groups": {1, []string{"internal topics: __consumer_offsets, __share_group_state"}},
		"transactions": {1, []string{
			"internal topics: __consumer_offsets, __transaction_state", "the topic __transaction_state is kept, but not acted on yet: transactional producers are turned away",
		}},
		"transactions-tv1": {1, []string{"transaction.version=1"}},
		"cluster3-node1":   {2, []string{"1 replica to be deleted"}},
		"cluster3-node3":   {2, []string{"log end 422, snapshot 00000000000000000402-0000000005.checkpoint"}},
		"cluster3-node2":   {2, []string{"the metadata knows 3 brokers, and nothing is replicated", "3 brokers, 4 topics with 7 partitions, 7 of them here", "last stop: not clean"}},
	} {
		t.Run(name, func(t *testing.T) {
			m := kafkasDir(t, name)
			before := contents(t, m, "/data")
			r := Examine(DoctorOptions{FS: m, Dirs: []string{"/data"}, Deep: true})
			got := text(t, r)
			for _, want := range c.want {
				if !strings.Contains(got, want) {
					t.Errorf("does not say %q", want)
				}
			}
			if r.Status != c.status {
				t.Errorf("status %d, want %d", r.Status, c.status)
			}
			if !maps.Equal(before, contents(t, m, "/data")) {
				t.Error("files were changed")
			}
			if t.Failed() {
				t.Log(got)
			}
		})
	}
}

// TestDoctorFindsTheSixteenDamages examines the directory in which each topic was damaged in another way.
func TestDoctorFindsTheSixteenDamages(t *testing.T) {
	m := kafkasDir(t, "crashed")
	for _, deep := range []bool{false, true} {
		r := Examine(DoctorOptions{FS: m, Dirs: []string{"/data"}, Deep: deep})
		found := map[string][]string{}
		for _, f := range r.Findings {
			topic, _, _ := strings.Cut(strings.TrimPrefix(f.Where, "/data/"), "-0")
			found[topic] = append(found[topic], f.Severity.String()+": "+f.Where+": "+f.Message)
		}
		for topic, want := range map[string]string{
			"badcrc-active": "00000000000000000042.log: position 6901: CRC mismatch: recovery would cut 6023 bytes off",
			"badindex":      "00000000000000000000.index: the size 35 is no multiple of 8",
			"badsnapshot":   "00000000000000000021.snapshot: corrupt producer snapshot",
			"garbage":       "position 12924: corrupt record batch: unknown magic -120: recovery would cut 500 bytes off",
			"gone":          "waits for its deletion",
			"leftovers":     "2 leftover files of deletions or cleanings would be removed",
			"noindex":       "00000000000000000021.index: is missing and would be rebuilt",
			"stranger":      "would be set aside as a stray replica: the metadata has no such topic",
			"swapped":       "a finished cleaning would be swapped in (1 file)",
			"torn-body":     "record batch is truncated: recovery would cut 138 bytes off",
			"torn-header":   "record batch is truncated: recovery would cut 30 bytes off",
			"torn-prefix":   "record batch is truncated: recovery would cut 7 bytes off",
			"zeros":         "recovery would cut 4096 bytes off",
		} {
			if !strings.Contains(strings.Join(found[topic], "\n"), want) {
				t.Errorf("deep %t: %s: no finding %q in %q", deep, topic, want, found[topic])
			}
		}
		// Below the recovery point only a deep examination reads.
		old := strings.Contains(strings.Join(found["badcrc-old"], "\n"), "error: /data/badcrc-old-0/00000000000000000000.log: position 1138: CRC mismatch: it lies below the recovery point, so a start does not see it: consumers refuse the batch, and the cleaner would take the replica offline")
		if old != deep || r.Status != map[bool]int{false: 1, true: 2}[deep] {
			t.Errorf("deep %t: status %d, findings in badcrc-old %q", deep, r.Status, found["badcrc-old"])
		}
		for _, whole := range []string{"killed", "nosnapshot"} {
			if len(found[whole]) > 0 {
				t.Errorf("%s: %q", whole, found[whole])
			}
		}
	}
}

func TestDoctorReadsTheConfigurationToo(t *testing.T) {
	m := kafkasDir(t, "plain")
	file := "process.roles=broker,controller\nnode.id=7\ncontroller.quorum.voters=7@127.0.0.1:9093\nlisteners=PLAINTEXT://:9092,CONTROLLER://:9093\n" +
		"controller.listener.names=CONTROLLER\nlog.dirs=/data,/new\nnum.io.threads=99\nlog.retention.hour=1\n"
	load := func(extra string) DoctorOptions {
		c, warnings, err := config.Load(config.Options{FileName: "server.properties", File: []byte(file + extra)})
		return DoctorOptions{FS: m, Config: c, Warnings: warnings, ConfigError: err}
	}
	r := Examine(load(""))
	got := text(t, r)
	for _, want := range []string{
		"warning: server.properties:7: num.io.threads: has no effect", "server.properties:8: log.retention.hour: unknown key; did you mean log.retention.hours?",
		"error: /data/meta.properties: belongs to node 1, and this is node 7: the node would not start", "error: /new: is not formatted and others are: the node would not start",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("does not say %q", want)
		}
	}
	o := load("create.topic.policy.class.name=com.example.Policy\n")
	o.Dirs = []string{"/data"}
	r = Examine(o)
	if got += text(t, r); r.Status != 2 || !strings.Contains(got, "create.topic.policy.class.name") || len(r.Dirs) != 1 || r.Dirs[0].Partitions != 21 {
		t.Errorf("status %d", r.Status)
	}
	if t.Failed() {
		t.Log(got)
	}
}

// TestDoctorNamesEveryBrokenFile damages the small files one after the other.
func TestDoctorNamesEveryBrokenFile(t *testing.T) {
	for file, c := range map[string]struct {
		content  string
		severity Severity
	}{
		"meta.properties":                       {"version=x\n", Broken},
		"recovery-point-offset-checkpoint":      {"0\n7\nx", Suspicious},
		"log-start-offset-checkpoint":           {"9\n", Suspicious},
		"replication-offset-checkpoint":         {"0\n1\n", Suspicious},
		"cleaner-offset-checkpoint":             {"0\n1\na b c\n", Suspicious},
		".kafka_cleanshutdown":                  {"{", Suspicious},
		"edge-0/partition.metadata":             {"version: 0\n", Broken},
		"edge-0/leader-epoch-checkpoint":        {"0\n1\nx y\n", Broken},
		"edge-0/00000000000000000003.log1":      {"", Suspicious},
		"edge-0/3.log":                          {"", Suspicious},
		"no-partition/x":                        {"", Suspicious},
		"edge-7/x":                              {"", Suspicious},
		"unknown.txt":                           {"", Note},
		"edge-0/00000000000000000099.timeindex": {"", Suspicious},
		"__cluster_metadata-0/quorum-state":     {"{", Broken},
		"__cluster_metadata-0/00000000000000000000-0000000000.checkpoint": {"x", Broken},
	} {
		m := kafkasDir(t, "plain")
		name := path.Join("/data", file)
		if err := m.MkdirAll(path.Dir(name)); err != nil {
			t.Fatal(err)
		}
		if err := vfs.WriteFile(m, name, []byte(c.content)); err != nil {
			t.Fatal(err)
		}
		r := Examine(DoctorOptions{FS: m, Dirs: []string{"/data"}})
		named := slices.ContainsFunc(r.Findings, func(f Finding) bool {
			return f.Severity == c.severity && (strings.HasPrefix(name, f.Where) || strings.Contains(f.Message, name)) && f.Where != "/data"
		})
		if !named {
			t.Errorf("%s is not named: %+v", file, r.Findings)
		}
	}
}

func TestDoctorSetsFutureReplicasOfUnknownTopicsAsideToo(t *testing.T) {
	m := kafkasDir(t, "plain")
	if err := m.MkdirAll("/data/unknown-0.0123456789abcdef0123456789abcdef-future"); err != nil {
		t.Fatal(err)
	}
	if got := text(t, Examine(DoctorOptions{FS: m, Dirs: []string{"/data"}})); !strings.Contains(got, "-future: would be set aside as a stray replica: the metadata has no such topic") {
		t.Error(got)
	}
}

func TestDoctorMissesReplicasThatAreGone(t *testing.T) {
	m := kafkasDir(t, "plain")
	if err := m.RemoveAll("/data/keyed-2"); err != nil {
		t.Fatal(err)
	}
	r := Examine(DoctorOptions{FS: m, Dirs: []string{"/data"}})
	if got := text(t, r); r.Status != 1 || !strings.Contains(got, "warning: keyed-2: the metadata knows this replica and no directory has it") {
		t.Error(got)
	}
}

func TestDoctorsJSONHasTheSameFindings(t *testing.T) {
	r := Examine(DoctorOptions{FS: kafkasDir(t, "crashed"), Dirs: []string{"/data"}})
	var b bytes.Buffer
	if err := r.WriteJSON(&b); err != nil {
		t.Fatal(err)
	}
	var got struct {
		Directories []struct{ Partitions int }
		Metadata    struct{ MetadataVersion string }
		Findings    []struct{ Severity, Where, Message string }
		Status      int
	}
	if err := json.Unmarshal(b.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if len(got.Findings) != len(r.Findings) || got.Status != 1 || got.Directories[0].Partitions != 17 || got.Metadata.MetadataVersion != "4.4-IV2" || got.Findings[0].Severity != "warning" {
		t.Errorf("%s", b.String())
	}
}

func TestDoctorOfNothing(t *testing.T) {
	m := vfs.NewMem()
	if err := m.MkdirAll("/empty"); err != nil {
		t.Fatal(err)
	}
	r := Examine(DoctorOptions{FS: m, Dirs: []string{"/empty", "/missing"}})
	if got := text(t, r); r.Status != 0 || !strings.Contains(got, "no directory is formatted") {
		t.Error(got)
	}
}
