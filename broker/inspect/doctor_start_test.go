package inspect

import (
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"gregor/storage"
	"gregor/storage/vfs"
)

// outcome is what a start makes of log directories, told by the doctor or by the start itself.
type outcome struct {
	refused bool
	offline []string // replicas, by the names of their directories
	cut     []string // replicas whose files recovery shortens or removes
}

// foretold is what the doctor says.
func foretold(r *Report) outcome {
	var o outcome
	offline, cut := map[string]bool{}, map[string]bool{}
	for _, f := range r.Findings {
		replica := path.Base(path.Dir(f.Where))
		switch {
		case strings.Contains(f.Message, "the node would not start"):
			o.refused = true
		case strings.Contains(f.Message, "the replica would be offline"):
			offline[replica] = true
		case strings.Contains(f.Message, "recovery would"):
			cut[replica] = true
		}
	}
	o.offline, o.cut = slices.Sorted(maps.Keys(offline)), slices.Sorted(maps.Keys(cut))
	return o
}

// happened is what a start does.
func happened(t *testing.T, m *vfs.Mem, dirs []string) outcome {
	t.Helper()
	var o outcome
	var mu sync.Mutex
	offline := map[string]bool{}
	mgr, err := storage.OpenManager(storage.ManagerOptions{
		FS: m, LogDirs: dirs, NodeID: 1, Defaults: storage.DefaultLogConfig(), RecoveryThreads: 1,
		ReplicaDamaged: func(r storage.DamagedReplica) {
			mu.Lock()
			defer mu.Unlock()
			offline[storage.TopicPartition{Topic: r.Topic, Partition: r.Partition}.String()] = true
		},
	})
	if err != nil {
		return outcome{refused: true}
	}
	before := contents(t, m, "/data")
	if err := mgr.Load(storage.LoadOptions{}); err != nil {
		t.Fatal(err)
	}
	cut := map[string]bool{}
	after := contents(t, m, "/data")
	for name, b := range before {
		// A log that a cleaning or a deletion left over goes too, which is no loss.
		if strings.HasSuffix(name, ".log") && !strings.Contains(name, "-delete/") && len(after[name]) < len(b) {
			cut[path.Base(path.Dir(name))] = true
		}
	}
	if err := mgr.Shutdown(-1); err != nil { // waits for what is told
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	o.offline, o.cut = slices.Sorted(maps.Keys(offline)), slices.Sorted(maps.Keys(cut))
	return o
}

// TestDoctorForetellsWhatAStartDoes examines directories, then starts on them.
func TestDoctorForetellsWhatAStartDoes(t *testing.T) {
	write := func(name, content string) func(*testing.T, *vfs.Mem) {
		return func(t *testing.T, m *vfs.Mem) {
			t.Helper()
			if err := m.MkdirAll(path.Dir(name)); err != nil {
				t.Fatal(err)
			}
			if err := vfs.WriteFile(m, name, []byte(content)); err != nil {
				t.Fatal(err)
			}
		}
	}
	flip := func(name string, at int) func(*testing.T, *vfs.Mem) {
		return func(t *testing.T, m *vfs.Mem) {
			t.Helper()
			b, err := vfs.ReadFile(m, name)
			if err != nil {
				t.Fatal(err)
			}
			b[at] ^= 0x10
			write(name, string(b))(t, m)
		}
	}
	unclean := func(then func(*testing.T, *vfs.Mem)) func(*testing.T, *vfs.Mem) {
		return func(t *testing.T, m *vfs.Mem) {
			t.Helper()
			if err := m.Remove("/data/.kafka_cleanshutdown"); err != nil {
				t.Fatal(err)
			}
			then(t, m)
		}
	}
	nothing := func(*testing.T, *vfs.Mem) {}
	for _, tc := range []struct {
		name, golden string
		damage       func(*testing.T, *vfs.Mem)
		dirs         []string
		want         outcome
	}{
		{name: "nothing wrong", golden: "plain", damage: nothing},
		{name: "a crash", golden: "plain", damage: unclean(nothing)},
		{name: "partition.metadata", golden: "plain", damage: write("/data/edge-0/partition.metadata", "version: 0\n"), want: outcome{offline: []string{"edge-0"}}},
		{name: "leader epochs", golden: "plain", damage: write("/data/edge-0/leader-epoch-checkpoint", "0\n1\nx y\n"), want: outcome{offline: []string{"edge-0"}}},
		{name: "flip below the recovery point after a crash", golden: "plain", damage: unclean(flip("/data/keyed-0/00000000000000000000.log", 30)), want: outcome{offline: []string{"keyed-0"}}},
		{name: "a length at the end of a clean log", golden: "plain", damage: flip("/data/keyed-0/00000000000000000000.log", 8), want: outcome{offline: []string{"keyed-0"}}},
		{
			name: "the sixteen damages", golden: "crashed", damage: nothing,
			want: outcome{cut: []string{"badcrc-active-0", "garbage-0", "torn-body-0", "torn-header-0", "torn-prefix-0", "zeros-0"}},
		},
		{name: "a new directory", golden: "plain", damage: nothing, dirs: []string{"/data", "/new"}, want: outcome{refused: true}},
		{name: "an empty meta.properties", golden: "plain", damage: write("/new/meta.properties", ""), dirs: []string{"/data", "/new"}, want: outcome{refused: true}},
		{name: "a broken meta.properties", golden: "plain", damage: write("/new/meta.properties", "version=x\n"), dirs: []string{"/data", "/new"}},
		{name: "a broken meta.properties beside the metadata", golden: "plain", damage: write("/data/meta.properties", "version=x\n"), want: outcome{refused: true}},
		{
			name: "another cluster", golden: "plain", dirs: []string{"/data", "/new"}, want: outcome{refused: true},
			damage: write("/new/meta.properties", "version=1\ncluster.id=AAAAAAAAAAAAAAAAAAAAAQ\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAg\n"),
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := kafkasDir(t, tc.golden)
			tc.damage(t, m)
			dirs := tc.dirs
			if dirs == nil {
				dirs = []string{"/data"}
			}
			said := foretold(Examine(DoctorOptions{FS: m, Dirs: dirs}))
			did := happened(t, m, dirs)
			if !said.equals(tc.want) {
				t.Errorf("the doctor says %+v, want %+v", said, tc.want)
			}
			if !did.equals(said) {
				t.Errorf("the doctor says %+v, the start does %+v", said, did)
			}
		})
	}
}

func (o outcome) equals(p outcome) bool {
	return o.refused == p.refused && slices.Equal(o.offline, p.offline) && slices.Equal(o.cut, p.cut)
}

// TestDoctorForetellsThatAControllerIsRefused: damage that no crash explains keeps a voter from starting.
func TestDoctorForetellsThatAControllerIsRefused(t *testing.T) {
	m := kafkasDir(t, "metadata")
	name := "/data/__cluster_metadata-0/00000000000000000000.log"
	b, err := vfs.ReadFile(m, name)
	if err != nil {
		t.Fatal(err)
	}
	b[len(b)/2] ^= 1
	if err := vfs.WriteFile(m, name, b); err != nil {
		t.Fatal(err)
	}
	got := text(t, Examine(DoctorOptions{FS: m, Dirs: []string{"/data"}}))
	if want := "error: /data/__cluster_metadata-0: a controller would not start: corrupt metadata log"; !strings.Contains(got, want) {
		t.Errorf("does not say %q:\n%s", want, got)
	}
}
