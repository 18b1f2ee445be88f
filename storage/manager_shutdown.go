package storage

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"gregor/storage/checkpoint"
	"gregor/storage/vfs"
)

// closingThreads close the logs of a directory: they wait for syncs, which the file system joins.
const closingThreads = 16

// defaultBatchFrom is how many logs are closed, or created, together with a sync of the whole volume: for fewer it might
// wait for more of other programs' writes than it saves.
const defaultBatchFrom = 128

// Shutdown stops cleanly, in Kafka's order: high watermarks; per log a flush, the producer snapshot and cut
// indexes; per directory the recovery points, the log start offsets and the proof of the clean stop with the
// broker's epoch (-1 when it has none); last the locks. A directory in which something failed, or that has no space for what
// is to be written, gets no such proof: the next start recovers its logs. No log may be in use any more.
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

// closeDir closes the logs of a directory.
func (m *Manager) closeDir(d *logDir, brokerEpoch int64) error {
	m.mu.RLock()
	logs := slices.Collect(maps.Values(d.logs))
	m.mu.RUnlock()
	if err := m.closeLogs(d, logs); err != nil {
		return err
	}
	if err := m.syncNames(d); err != nil { // of the logs that were created
		return err
	}
	if err := errors.Join(m.checkpoint(d, recoveryPointsIn), m.checkpoint(d, logStartOffsetsIn), m.checkpointCleaned(d)); err != nil {
		return err
	}
	if err := d.err(); err != nil {
		return err
	}
	if !d.hadCleanShutdown && !d.loadComplete {
		return nil
	}
	if err := checkpoint.WriteCleanShutdown(m.fs, d.file(checkpoint.CleanShutdownFile), brokerEpoch); err != nil {
		return d.refuse("write of "+checkpoint.CleanShutdownFile, err)
	}
	return nil
}

// closeLogs closes logs of a directory, many of them in a batch: two syncs of the volume then stand for half a dozen of
// each log.
func (m *Manager) closeLogs(d *logDir, logs []*Log) error {
	c := closing{named: true}
	if d.volume != nil && len(logs) >= m.batchFrom {
		c.batch = vfs.NewBatch(m.fs)
	}
	errs := make([]error, len(logs))
	inParallel(max(m.o.RecoveryThreads, closingThreads), len(logs), func(i int) { errs[i] = logs[i].close(c) })
	failed := 0
	for i, err := range errs {
		if err != nil && !errors.Is(err, ErrClosed) {
			failed++
			if errors.Is(err, ErrNoSpace) {
				continue // the directory has said so
			}
			m.log.Error("Cannot close a log cleanly", "topic", logs[i].Topic(), "partition", logs[i].Partition(), "error", err)
		}
	}
	if failed > 0 {
		if c.batch != nil {
			c.batch.Discard()
		}
		return storageErrorf(d.path, "clean shutdown", fmt.Errorf("%d logs could not be closed", failed))
	}
	if c.batch == nil {
		return nil
	}
	if err := c.batch.Commit(d.volume); err != nil {
		err = storageErrorf(d.path, "sync of the volume", err)
		m.dirFailed(d, err)
		return err
	}
	for i, l := range logs {
		if errs[i] == nil {
			l.closedDurably()
		}
	}
	return nil
}

// inParallel calls work with 0 to n-1 on a number of goroutines.
func inParallel(goroutines, n int, work func(i int)) {
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(goroutines, n) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
				work(i)
			}
		})
	}
	wg.Wait()
}
