package storage

import (
	"io"
	"log/slog"
	"path"
	"strings"
	"syscall"
	"testing"
	"time"

	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

func textLogger(w io.Writer) *slog.Logger { return slog.New(slog.NewTextHandler(w, nil)) }

func TestUnformattedNodeIsReportedAsSuch(t *testing.T) {
	fsys := vfs.NewMem()
	_, err := OpenManager(managerOptions(fsys, "/d1", "/d2"))
	mustBe(t, err, ErrUnformatted, "/d1")
	if exists(t, fsys, "/d1") {
		t.Fatal("a directory is made by who formats it")
	}
}

func TestSecondInstanceIsRefused(t *testing.T) {
	dir := t.TempDir()
	format(t, vfs.Real(), dir)
	m := startManager(t, managerOptions(vfs.Real(), dir))
	_, err := OpenManager(managerOptions(vfs.Real(), dir))
	mustBe(t, err, ErrDirLocked, "failed to acquire lock on file .lock in "+dir)
	must(t, m.Shutdown(1))
	if exists(t, vfs.Real(), path.Join(dir, ".lock")) {
		t.Fatal("a clean stop removes the lock file")
	}
	startManager(t, managerOptions(vfs.Real(), dir))
}

func TestLocksTakenAreReleasedWhenAnotherIsRefused(t *testing.T) {
	fsys := vfs.NewMem()
	format(t, fsys, "/d1", "/d2")
	held, err := fsys.Lock("/d2/.lock")
	must(t, err)
	_, err = OpenManager(managerOptions(fsys, "/d1", "/d2"))
	mustBe(t, err, ErrDirLocked, "/d2")
	must(t, held.Close())
	startManager(t, managerOptions(fsys, "/d1", "/d2"))
}

// A directory that has no id yet gets one, but not from a start that another process's lock ends.
func TestStartThatFindsALockWritesNothing(t *testing.T) {
	fsys := vfs.NewMem()
	format(t, fsys, "/d1", "/d2")
	const file = "/d1/meta.properties"
	old := checkpoint.MetaProperties{Version: 1, ClusterID: testCluster, NodeID: 1}
	must(t, checkpoint.WriteMetaProperties(fsys, file, old, time.Unix(0, 0)))
	held, err := fsys.Lock("/d2/.lock")
	must(t, err)
	_, err = OpenManager(managerOptions(fsys, "/d1", "/d2"))
	mustBe(t, err, ErrDirLocked, "/d2")
	must(t, held.Close())
	if got, err := checkpoint.ReadMetaProperties(fsys, file); err != nil || got.DirectoryID != old.DirectoryID {
		t.Errorf("the directory is of %+v now (%v)", got, err)
	}
}

func TestDirectoriesOfAnotherNodeAreRefused(t *testing.T) {
	meta := func(node int32, cluster string, id byte) checkpoint.MetaProperties {
		return checkpoint.MetaProperties{Version: 1, NodeID: node, ClusterID: cluster, DirectoryID: dirID(id)}
	}
	reserved := meta(1, testCluster, 0)
	reserved.DirectoryID = [16]byte{15: 3}
	for name, c := range map[string]struct {
		second  checkpoint.MetaProperties
		cluster string
		text    string
	}{
		"node":       {meta(2, testCluster, 2), "", "stored node id 2 doesn't match previous node id 1 in /d2/meta.properties"},
		"cluster":    {meta(1, "other", 2), "", "invalid cluster.id in /d2/meta.properties: expected " + testCluster + ", but read other"},
		"configured": {meta(1, testCluster, 2), "mine", "expected mine, but read " + testCluster},
		"duplicate":  {meta(1, testCluster, 1), "", "duplicate directory.id"},
		"reserved":   {reserved, "", "reserved directory.id"},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewMem()
			format(t, fsys, "/d1", "/d2")
			must(t, checkpoint.WriteMetaProperties(fsys, "/d2/meta.properties", c.second, time.Unix(0, 0)))
			o := managerOptions(fsys, "/d1", "/d2")
			o.ClusterID = c.cluster
			_, err := OpenManager(o)
			mustBe(t, err, ErrWrongNode, c.text)
			if exists(t, fsys, "/d1/.lock") && !lockFree(fsys, "/d1/.lock") {
				t.Fatal("a lock is left")
			}
		})
	}
}

func lockFree(fsys vfs.FS, name string) bool {
	l, err := fsys.Lock(name)
	if err != nil {
		return false
	}
	_ = l.Close()
	return true
}

func TestSameDirectoryTwiceIsRefused(t *testing.T) {
	fsys := vfs.NewMem()
	format(t, fsys, "/d1")
	_, err := OpenManager(managerOptions(fsys, "/d1", "/d1/"))
	mustBe(t, err, nil, "duplicate log directory found: /d1")
}

func TestNoDirectoryIsRefused(t *testing.T) {
	_, err := OpenManager(managerOptions(vfs.NewMem()))
	mustBe(t, err, nil, "no log directory is configured")
}

// An unmounted disk looks like this. Kafka 4.4 says "No `meta.properties` found in /d2" and exits.
func TestDirectoryThatIsNotFormattedBesideOthersIsRefused(t *testing.T) {
	for name, dirs := range map[string][]string{"data": {"/d1", "/d2"}, "metadata": {"/d2", "/d1"}} {
		for _, made := range []bool{false, true} {
			fsys := vfs.NewMem()
			format(t, fsys, "/d1")
			if made {
				must(t, fsys.MkdirAll("/d2"))
			}
			_, err := OpenManager(managerOptions(fsys, dirs...))
			mustBe(t, err, ErrDirLost, "no meta.properties in /d2, although /d1 has one")
			if exists(t, fsys, "/d2") != made || exists(t, fsys, "/d2/meta.properties") || exists(t, fsys, "/d1/.lock") {
				t.Fatal(name, made, "something was written")
			}
		}
	}
}

// It is what a crash leaves of a file that was not synced; with a new id the directory's replicas would be lost.
func TestEmptyMetaPropertiesAreRefused(t *testing.T) {
	for _, contents := range []string{"", "foo\n"} {
		fsys := vfs.NewMem()
		format(t, fsys, "/d1", "/d2")
		must(t, vfs.WriteFile(fsys, "/d2/meta.properties", []byte(contents)))
		_, err := OpenManager(managerOptions(fsys, "/d1", "/d2"))
		mustBe(t, err, ErrDirLost, "/d2/meta.properties is empty")
	}
}

func TestDirectoryOfAnOlderVersionGetsAnIDOfItsOwn(t *testing.T) {
	fsys := vfs.NewMem()
	format(t, fsys, "/d1")
	must(t, fsys.MkdirAll("/old"))
	must(t, vfs.WriteFile(fsys, "/old/meta.properties", []byte("version=0\nbroker.id=1\nmine=kept\n")))
	m := startManager(t, managerOptions(fsys, "/d1", "/old"))
	ids := map[[16]byte]bool{}
	for _, d := range m.Dirs() {
		meta, err := checkpoint.ReadMetaProperties(fsys, path.Join(d.Path, "meta.properties"))
		must(t, err)
		if meta.Version != 1 || meta.NodeID != 1 || meta.ClusterID != testCluster || meta.DirectoryID != d.ID || isReservedDirID(d.ID) {
			t.Fatalf("%s: %+v", d.Path, meta)
		}
		ids[d.ID] = true
		if d.Path == "/old" && (len(meta.Extra) != 1 || meta.Extra[0].Value != "kept") {
			t.Fatalf("unknown keys: %+v", meta.Extra)
		}
	}
	if len(ids) != 2 || !ids[dirID(1)] {
		t.Fatal(ids)
	}
}

func TestMetadataLogInAnotherDirectoryIsRefused(t *testing.T) {
	fsys := vfs.NewMem()
	format(t, fsys, "/d1", "/d2")
	must(t, fsys.MkdirAll("/d2/"+MetadataTopic+"-0"))
	_, err := OpenManager(managerOptions(fsys, "/d1", "/d2"))
	mustBe(t, err, ErrWrongNode, "found unexpected metadata log /d2/__cluster_metadata-0")
	o := managerOptions(fsys, "/d1", "/d2")
	o.MetadataDir = "/d2"
	m := startManager(t, o)
	if d := m.MetadataDir(); d.Path != "/d2" || !d.HoldsLogs {
		t.Fatalf("%+v", d)
	}
}

func TestSeparateMetadataDirectoryIsLockedAndHoldsNoPartitions(t *testing.T) {
	fsys := vfs.NewMem()
	format(t, fsys, "/d1", "/meta")
	o := managerOptions(fsys, "/d1")
	o.MetadataDir = "/meta"
	m := startManager(t, o)
	if _, err := fsys.Lock("/meta/.lock"); err == nil {
		t.Fatal("it is not locked")
	}
	for i := range int32(4) {
		if l := createLog(t, m, "t", i, [16]byte{}); path.Dir(l.Dir()) != "/d1" {
			t.Fatal(l.Dir())
		}
	}
	must(t, m.Shutdown(1))
	if got := namesIn(t, fsys, "/meta"); len(got) != 1 || got[0] != "meta.properties" {
		t.Fatal(got)
	}
}

func TestControllerWritesNothingButTheLock(t *testing.T) {
	fsys := vfs.NewMem()
	format(t, fsys, "/d1", "/meta")
	o := managerOptions(fsys, "/d1")
	o.MetadataDir, o.ControllerOnly = "/meta", true
	m := startManager(t, o)
	if exists(t, fsys, "/d1/.lock") || !exists(t, fsys, "/meta/.lock") {
		t.Fatal("the lock is that of the metadata directory")
	}
	must(t, m.Shutdown(-1))
	for _, d := range []string{"/d1", "/meta"} {
		if got := namesIn(t, fsys, d); len(got) != 1 {
			t.Fatal(got)
		}
	}
}

func TestUnreadableDirectoryIsOfflineFromTheStart(t *testing.T) {
	for name, failing := range map[string]vfs.Match{
		"list":            vfs.MatchKind(vfs.OpReadDir),
		"meta.properties": vfs.MatchKind(vfs.OpOpen),
		"lock":            vfs.MatchKind(vfs.OpLock),
	} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewMem()
			format(t, mem, "/d1", "/d2")
			fsys := vfs.NewErr(mem, vfs.FailFrom(1, syscall.EIO, failing.And(vfs.MatchPath("/d2"))))
			m := startManager(t, managerOptions(fsys, "/d1", "/d2"))
			dirs := m.Dirs()
			mustBe(t, dirs[1].Err, ErrStorage, "input/output error")
			if dirs[0].Err != nil {
				t.Fatal(dirs[0].Err)
			}
			if _, ok := m.PreviousBrokerEpoch(); ok {
				t.Fatal("an offline directory proves nothing")
			}
			createLog(t, m, "t", 0, [16]byte{})
			_, err := m.CreateLog("u", 0, topicIDOf("u"), testConfig(), dirID(2))
			mustBe(t, err, ErrStorage, "/d2")
			must(t, m.Shutdown(1))
		})
	}
}

func TestDamagedMetaPropertiesTakesItsDirectoryOffline(t *testing.T) {
	fsys := vfs.NewMem()
	format(t, fsys, "/d1", "/d2")
	must(t, vfs.WriteFile(fsys, "/d2/meta.properties", []byte("version=1\nnode.id=x\n")))
	m := startManager(t, managerOptions(fsys, "/d1", "/d2"))
	mustBe(t, m.Dirs()[1].Err, checkpoint.ErrSyntax, "/d2/meta.properties:2")

	must(t, vfs.WriteFile(fsys, "/d1/meta.properties", []byte("version=1\nnode.id=x\n")))
	_, err := OpenManager(managerOptions(fsys, "/d1", "/d3"))
	mustBe(t, err, checkpoint.ErrSyntax, "error in the metadata log directory /d1")
}

func TestFileInPlaceOfADirectoryIsOffline(t *testing.T) {
	fsys := vfs.NewMem()
	format(t, fsys, "/d1")
	must(t, vfs.WriteFile(fsys, "/d2", nil))
	m := startManager(t, managerOptions(fsys, "/d1", "/d2"))
	mustBe(t, m.Dirs()[1].Err, ErrStorage, "is not a directory")
}

func TestBrokerEpochOfTheLastStopNeedsAllDirectoriesToAgree(t *testing.T) {
	for name, c := range map[string]struct {
		files []string
		ok    bool
	}{
		"agree":    {[]string{`{"version":0,"brokerEpoch":7}`, `{"version":0,"brokerEpoch":7}`}, true},
		"disagree": {[]string{`{"version":0,"brokerEpoch":7}`, `{"version":0,"brokerEpoch":8}`}, false},
		"one":      {[]string{`{"version":0,"brokerEpoch":7}`}, false},
		"garbage":  {[]string{`{"version":0,"brokerEpoch":7}`, `x`}, false},
		"none":     {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			fsys := vfs.NewMem()
			format(t, fsys, "/d1", "/d2")
			for i, contents := range c.files {
				must(t, vfs.WriteFile(fsys, []string{"/d1", "/d2"}[i]+"/.kafka_cleanshutdown", []byte(contents)))
			}
			m, err := OpenManager(managerOptions(fsys, "/d1", "/d2"))
			must(t, err)
			defer m.Kill()
			if epoch, ok := m.PreviousBrokerEpoch(); ok != c.ok || ok && epoch != 7 {
				t.Fatal(epoch, ok)
			}
		})
	}
}

func TestNewDirectoryIDsDoNotBeginWithADash(t *testing.T) {
	for range 1000 {
		if id := newDirID(); strings.HasPrefix(formatID(id), "-") || isReservedDirID(id) {
			t.Fatal(formatID(id))
		}
	}
	if !isReservedDirID([16]byte{15: 99}) || isReservedDirID([16]byte{15: 100}) || isReservedDirID([16]byte{0: 1}) {
		t.Fatal("ids below 100 are reserved")
	}
}
