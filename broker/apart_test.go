package broker

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strconv"
	"testing"
	"time"

	"gregor/broker/config"
	"gregor/kraft"
	"gregor/kraft/quorum"
	"gregor/protocol"
	"gregor/storage/vfs"
)

// startApart starts a node of one role; the controller's port is that of the broker plus one.
func startApart(t *testing.T, port int, clusterID string, controller bool) *testNode {
	t.Helper()
	n := &testNode{t: t, dir: t.TempDir(), port: port}
	role, id, listener := "broker", 1, fmt.Sprintf("PLAINTEXT://127.0.0.1:%d", port)
	if controller {
		role, id, listener = "controller", 100, fmt.Sprintf("CONTROLLER://127.0.0.1:%d", port+1)
	}
	c, _, err := config.Load(config.Options{Overrides: []string{
		"process.roles=" + role, "node.id=" + strconv.Itoa(id), "listeners=" + listener, "log.dirs=" + filepath.Join(n.dir, "data"),
		"controller.listener.names=CONTROLLER", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		fmt.Sprintf("controller.quorum.voters=100@127.0.0.1:%d", port+1),
		"metadata.max.idle.interval.ms=0", // no records without a cause
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	n.broker, err = Start(ctx, Options{
		Config: c, FS: vfs.Real(), Logger: slog.New(slog.DiscardHandler), Version: "test", FormatOutput: io.Discard,
		Format: &kraft.Formatter{
			FS: vfs.Real(), NodeID: c.Node.ID, ClusterID: clusterID, LogDirs: c.Storage.Dirs, MetadataDir: c.Storage.Dirs[0],
			Controller: controller, HasStaticVoters: true, ListenerName: "CONTROLLER", Now: time.Now,
			AdvertisedController: quorum.Endpoint{Name: "CONTROLLER", Host: "127.0.0.1", Port: uint16(port + 1)},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.stop)
	return n
}

func TestForwardedRequestsDoNotWaitForTheFetchOfTheMetadataLog(t *testing.T) {
	port, clusterID := freePorts(t), protocol.RandomUUID().String()
	startApart(t, port, clusterID, true)
	n := startApart(t, port, clusterID, false)
	cl := n.client()
	var took []time.Duration
	for i := range 7 {
		began := time.Now()
		n.createTopic(cl, "t"+strconv.Itoa(i), 1, nil)
		took = append(took, time.Since(began))
	}
	slices.Sort(took)
	// A fetch that finds nothing new is answered after 500 ms.
	if took[3] > 300*time.Millisecond {
		t.Errorf("topics took %s to be made", took)
	}
}
