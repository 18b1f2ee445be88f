package api

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"gregor/broker/replica"
	"gregor/kraft/image"
	"gregor/kraft/metadata"
	"gregor/protocol"
	"gregor/storage"
	"gregor/storage/vfs"
)

// fullLogs creates no log while its disk is full.
type fullLogs struct {
	benchLogs
	full atomic.Bool
}

func (l *fullLogs) CreateLog(topic string, partition int32, id [16]byte, c storage.LogConfig, dir [16]byte) (*storage.Log, error) {
	if l.full.Load() {
		return nil, &storage.NoSpaceError{Op: "creation", Dir: "/d", Cause: syscall.ENOSPC}
	}
	return l.benchLogs.CreateLog(topic, partition, id, c, dir)
}

// DeleteLogs is asked for one that was not created.
func (l *fullLogs) DeleteLogs([]storage.TopicPartition) error { return nil }

func TestReplicaThatThereWasNoSpaceForComesUpLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var lines bytes.Buffer
		logs := &fullLogs{benchLogs: benchLogs{fs: vfs.NewMem(), dir: "/d", logs: map[string]*storage.Log{}}}
		defer logs.close()
		m := replica.NewManager(replica.Options{
			NodeID: 1, Logs: logs, Logger: slog.New(slog.NewTextHandler(&lines, nil)),
			TopicConfig: func(map[string]string) (storage.LogConfig, error) { return storage.DefaultLogConfig(), nil },
		})
		ctx, cancel := context.WithCancel(context.Background())
		done := make(chan struct{})
		go func() {
			defer close(done)
			m.Run(ctx)
		}()
		logs.full.Store(true)
		img := image.Empty()
		publish := func(records ...metadata.Record) {
			d := image.NewDelta(img)
			for _, r := range records {
				if err := d.Replay(r); err != nil {
					t.Fatal(err)
				}
			}
			img = d.Apply(image.Provenance{Offset: img.Provenance.Offset + 1})
			m.Publish(d, img, image.Manifest{})
		}
		partition := func(topic protocol.UUID) metadata.Record {
			r := metadata.NewPartitionRecord()
			r.PartitionID, r.TopicID, r.Replicas, r.ISR, r.Leader = 0, topic, []int32{1}, []int32{1}, 1
			return r
		}
		stays, goes := protocol.UUID{15: 1}, protocol.UUID{15: 2}
		publish(&metadata.TopicRecord{Name: "stays", TopicID: stays}, partition(stays), &metadata.TopicRecord{Name: "goes", TopicID: goes}, partition(goes))
		time.Sleep(time.Minute)
		if err := m.Missing("stays", 0); !errors.Is(err, kerr.KafkaStorageError) || m.Lookup("stays", 0) != nil {
			t.Errorf("while the disk is full: %v", err)
		}
		if n := strings.Count(lines.String(), "level="); n != 1 || !strings.Contains(lines.String(), "replicas=2 error=\"no space") {
			t.Errorf("%d lines:\n%s", n, lines.String())
		}
		publish(&metadata.RemoveTopicRecord{TopicID: goes})
		logs.full.Store(false)
		time.Sleep(time.Minute)
		p := m.Lookup("stays", 0)
		if p == nil || m.Lookup("goes", 0) != nil || !errors.Is(m.Missing("stays", 0), kerr.NotLeaderForPartition) {
			t.Fatalf("with space: %v, %v", p, m.Missing("stays", 0))
		}
		if _, leads := p.Leading(); !leads {
			t.Error("it does not lead")
		}
		cancel()
		<-done
	})
}
