package storage

import (
	"errors"
	"time"
)

// startLoops begins the periodic work. What flush.ms asks for is done by each log itself.
func (m *Manager) startLoops() {
	i := m.o.Intervals
	if m.cleaner != nil {
		m.cleaner.Start()
	}
	m.every(i.RetentionCheckMillis, i.InitialRetentionMillis, m.deleteOldSegments)
	m.every(i.ProducerExpiryMillis, i.ProducerExpiryMillis, m.expireProducers)
	m.every(i.RecoveryPointMillis, i.RecoveryPointMillis, func() {
		m.checkpoints(recoveryPointsIn)()
		m.recheckpointCleaned()
	})
	m.every(i.LogStartOffsetMillis, i.LogStartOffsetMillis, m.checkpoints(logStartOffsetsIn))
	m.every(i.HighWatermarkMillis, i.HighWatermarkMillis, m.checkpoints(highWatermarksIn))
}

// every runs work on a goroutine of its own until the Manager stops.
func (m *Manager) every(intervalMillis, firstMillis int64, work func()) {
	m.work.Go(func() {
		timer := time.NewTimer(millis(firstMillis))
		defer timer.Stop()
		for {
			select {
			case <-m.ctx.Done():
				return
			case <-timer.C:
				work()
				timer.Reset(millis(intervalMillis))
			}
		}
	})
}

// millis is a duration, the longest there is for what does not fit.
func millis(n int64) time.Duration {
	const longest = time.Duration(1<<63 - 1)
	if n > int64(longest/time.Millisecond) {
		return longest
	}
	return time.Duration(n) * time.Millisecond
}

func (m *Manager) deleteOldSegments() {
	deleted := 0
	began := time.Now()
	for l := range m.Logs() {
		if m.ctx.Err() != nil {
			return
		}
		if m.isBeingCleaned(l) {
			continue // the cleaner applies retention to compacted logs after each round
		}
		n, err := l.DeleteOldSegments(time.Now())
		deleted += n
		// A failed log, and a full disk, has reported itself, a closed log has just been deleted.
		if err != nil && !errors.Is(err, ErrStorage) && !errors.Is(err, ErrClosed) && !errors.Is(err, ErrNoSpace) {
			m.log.Error("Cannot apply retention", "topic", l.Topic(), "partition", l.Partition(), "error", err)
		}
	}
	if deleted > 0 {
		m.log.Info("Applied retention", "segments", deleted, "millis", time.Since(began).Milliseconds())
	}
}

func (m *Manager) expireProducers() {
	for l := range m.Logs() {
		l.ExpireProducers(time.Now())
	}
}

// removeLater removes a renamed directory after file.delete.delay.ms; l is its log when it is open.
func (m *Manager) removeLater(path string, l *Log) {
	m.mu.Lock()
	m.doomed[path] = struct{}{}
	m.mu.Unlock()
	delay := millis(m.defaults.Load().FileDeleteDelayMillis)
	m.work.Go(func() {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-m.ctx.Done():
			// The next start finds the directory by its name.
			if l != nil {
				l.CloseUnclean()
			}
			return
		case <-timer.C:
		}
		m.removing.Lock()
		var err error
		if l != nil {
			err = l.Delete()
		} else {
			err = m.fs.RemoveAll(path)
		}
		m.removing.Unlock()
		m.mu.Lock()
		delete(m.doomed, path)
		m.mu.Unlock()
		if err != nil {
			m.log.Error("Cannot delete a log", "path", path, "error", err)
			return
		}
		m.log.Info("Deleted a log", "path", path)
	})
}

// PendingDeletions is the number of renamed directories that wait for their removal.
func (m *Manager) PendingDeletions() int {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return len(m.doomed)
}
