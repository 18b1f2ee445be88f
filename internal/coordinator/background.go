package coordinator

// background runs work of one machine. Whoever has the turn of the partition is
// its only user.
type background[R any, M Machine[R]] struct {
	*partition[R, M]
	running map[string]struct{}
	// timers of the same machine: they tell whether it is still the one loaded.
	timers *timers[R]
}

// Run implements [Background].
func (b *background[R, M]) Run(key string, work func() func() (Effect[R], error)) {
	if _, busy := b.running[key]; busy {
		return
	}
	b.running[key] = struct{}{}
	b.rt.stopping.Go(func() {
		op := work()
		err := b.submit(task[R, M]{
			kind: taskTimer, long: true,
			operation: operationFuncs[R, M]{
				runs: func() (Effect[R], error) {
					if b.loaded.timers != b.timers {
						return Effect[R]{}, ErrNotCoordinator
					}
					delete(b.running, key)
					return op()
				},
				ends: func(err error) {
					if err != nil {
						b.logger.Warn("background operation failed", "work", key, "cause", err)
					}
				},
			},
		})
		if err != nil {
			b.logger.Debug("background operation dropped", "work", key, "cause", err)
		}
	})
}

// Running implements [Background].
func (b *background[R, M]) Running(key string) bool {
	_, busy := b.running[key]
	return busy
}
