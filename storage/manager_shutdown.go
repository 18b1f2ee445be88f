package storage

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"gregor/storage/checkpoint"
)

// closingThreads close the logs of a directory: they wait for syncs, which the file system joins.
const closingThreads = 16

// Shutdown stops cleanly, in Kafka's order: high watermarks; per log a flush, the producer snapshot and cut
// indexes; per directory the recovery points, the log start offsets and the proof of the clean stop with the
// broker's epoch (-1 when it has none); last the locks. A directory in which something failed gets no such
// proof. No log may be in use any more.
func (m *Manager) Shutdown(brokerEpoch int64) error {
	m.stopLoops()
	if m.loaded.Load() {
		m.checkpoints(highWatermarksIn)()
	}
	var wg sync.WaitGroup
	errs := make([]error, len(m.dirs))
	for i, d := range m.dirs {
		if d.holdsLogs && d.online() && m.loaded.Load() {
			wg.Go(func() { errs[i] = m.closeDir(d, brokerEpoch) })
		}
	}
	wg.Wait()
	m.work.Wait()
	unlockDirs(m.dirs, true)
	return errors.Join(errs...)
}

// Kill stops without writing anything, as a crash would, but releases descriptors and locks.
func (m *Manager) Kill() {
	m.stopLoops()
	for l := range m.Logs() {
		l.CloseUnclean()
	}
	m.work.Wait()
	unlockDirs(m.dirs, false)
}

func (m *Manager) stopLoops() {
	// Creating and deleting is over when the lock has been had.
	m.changing.Lock()
	m.cancel()
	m.changing.Unlock()
	if m.cleaner != nil {
		m.cleaner.Stop()
	}
}

func (m *Manager) closeDir(d *logDir, brokerEpoch int64) error {
	m.mu.RLock()
	logs := make(chan *Log, len(d.logs))
	for _, l := range d.logs {
		logs <- l
	}
	m.mu.RUnlock()
	close(logs)
	var wg sync.WaitGroup
	var failed atomic.Int64
	for range max(m.o.RecoveryThreads, closingThreads) {
		wg.Go(func() {
			for l := range logs {
				if err := l.Close(); err != nil && !errors.Is(err, ErrClosed) {
					m.log.Error("Cannot close a log cleanly", "topic", l.Topic(), "partition", l.Partition(), "error", err)
					failed.Add(1)
				}
			}
		})
	}
	wg.Wait()
	if n := failed.Load(); n > 0 {
		return storageErrorf(d.path, "clean shutdown", fmt.Errorf("%d logs could not be closed", n))
	}
	m.checkpoint(d, recoveryPointsIn)
	m.checkpoint(d, logStartOffsetsIn)
	m.checkpointCleaned(d)
	if err := d.err(); err != nil {
		return err
	}
	if !d.hadCleanShutdown && !d.loadComplete {
		return nil
	}
	if err := checkpoint.WriteCleanShutdown(m.fs, d.file(checkpoint.CleanShutdownFile), brokerEpoch); err != nil {
		return storageErrorf(d.path, "write of "+checkpoint.CleanShutdownFile, err)
	}
	return nil
}
