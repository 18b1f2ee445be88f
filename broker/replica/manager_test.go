package replica

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/protocol"
	"gregor/storage"
)

// offlineLogs has all its logs in a directory that is offline.
type offlineLogs struct{ Logs }

var errDirOffline = fmt.Errorf("%w: /d is offline", storage.ErrStorage)

func (offlineLogs) CreateLog(string, int32, [16]byte, storage.LogConfig, [16]byte) (*storage.Log, error) {
	return nil, errDirOffline
}

// A directory that is offline at the start takes all its replicas with it, and every later change of theirs meets it again.
func TestReplicasOfAnOfflineDirectoryAreOneLineInTheLog(t *testing.T) {
	var log strings.Builder
	m := NewManager(Options{
		NodeID: 1, Logs: offlineLogs{}, Logger: slog.New(slog.NewTextHandler(&log, nil)),
		TopicConfig: func(map[string]string) (storage.LogConfig, error) { return storage.DefaultLogConfig(), nil },
	})
	img := image.Empty()
	publish := func(records ...metadata.Record) {
		delta := image.NewDelta(img)
		for _, r := range records {
			if err := delta.Replay(r); err != nil {
				t.Fatal(err)
			}
		}
		img = delta.Apply(image.Provenance{Offset: img.Provenance.Offset + int64(len(records))})
		m.Publish(delta, img, image.Manifest{})
	}
	id := protocol.UUID{15: 7}
	created := []metadata.Record{&metadata.TopicRecord{Name: "t", TopicID: id}}
	var led []metadata.Record
	for p := range int32(50) {
		r := metadata.NewPartitionRecord()
		r.TopicID, r.PartitionID, r.Leader, r.Replicas, r.ISR = id, p, 1, []int32{1}, []int32{1}
		created = append(created, r)
		c := metadata.NewPartitionChangeRecord()
		c.TopicID, c.PartitionID, c.Leader = id, p, 1
		led = append(led, c)
	}
	publish(created...)
	publish(led...)
	if got := log.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "replicas=50") {
		t.Errorf("the log says\n%s", got)
	}
	if err := m.Missing("t", 49); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("the replica is %v", err)
	}
}
