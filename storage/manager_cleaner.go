package storage

import (
	"iter"

	"gregor/storage/cleaner"
)

// compacted lists a Manager's logs for its cleaner: the current replicas of compacted topics, not future ones.
type compacted struct{ m *Manager }

// Compacted implements cleaner.Logs.
func (c compacted) Compacted() iter.Seq[cleaner.Log] {
	return func(yield func(cleaner.Log) bool) {
		c.m.mu.RLock()
		var found []cleanable
		for _, at := range c.m.current {
			if at.log.config.Load().CleanupCompact {
				found = append(found, cleanable{m: c.m, l: at.log, d: at.dir})
			}
		}
		c.m.mu.RUnlock()
		for _, f := range found {
			if !yield(f) {
				return
			}
		}
	}
}

// IsCurrent implements cleaner.Logs.
func (c compacted) IsCurrent(l cleaner.Log) bool {
	f := l.(cleanable)
	c.m.mu.RLock()
	defer c.m.mu.RUnlock()
	return c.m.current[f.l.topicPartition()].log == f.l
}

// stopCleaning waits until the cleaner has left the files of a log that is no longer current.
func (m *Manager) stopCleaning(at placedLog) {
	if m.cleaner != nil {
		m.cleaner.Abort(cleanable{m: m, l: at.log, d: at.dir})
	}
}

func (m *Manager) isBeingCleaned(l *Log) bool {
	if m.cleaner == nil {
		return false
	}
	m.mu.RLock()
	at := m.current[l.topicPartition()]
	m.mu.RUnlock()
	return at.log == l && m.cleaner.IsBusy(cleanable{m: m, l: l, d: at.dir})
}

// checkpointCleaned writes the first dirty offsets of the logs of a directory. The file comes with the first one. The error
// is dealt with, as that of checkpoint.
func (m *Manager) checkpointCleaned(d *logDir) error {
	d.checkpoints.Lock()
	old, known := d.written[cleanedToIn.file]
	offsets := d.collect(cleanedToIn)
	if known && len(old) == 0 && len(offsets) == 0 {
		d.checkpoints.Unlock()
		return nil
	}
	err := d.write(cleanedToIn.file, offsets)
	d.checkpoints.Unlock()
	if err != nil {
		m.dirFailed(d, err)
	}
	return err
}

// recheckpointCleaned is checkpointCleaned for all directories: of cleanings whose own found no space.
func (m *Manager) recheckpointCleaned() {
	for _, d := range m.onlineDirs() {
		_ = m.checkpointCleaned(d)
	}
}

// SetCleaner changes log.cleaner.*. It has no effect when the cleaner is off.
func (m *Manager) SetCleaner(c cleaner.Config) {
	if m.cleaner != nil {
		m.cleaner.Reconfigure(c)
	}
}

// CleanerMetrics returns the figures of the cleaner; ok is false when it is off.
func (m *Manager) CleanerMetrics() (figures cleaner.Metrics, ok bool) {
	if m.cleaner == nil {
		return cleaner.Metrics{}, false
	}
	return m.cleaner.Metrics(), true
}
