package main

import (
	"context"
	"log/slog"
	"sync"
)

// heldLog keeps log lines back until the node has said who it is, so that this is the first line that an operator
// sees: formatting, warnings about the configuration and the like come after it, with their own times.
type heldLog struct {
	slog.Handler
	state *heldState
}

type heldState struct {
	mu       sync.Mutex
	held     []heldRecord
	released bool
}

type heldRecord struct {
	to     slog.Handler
	record slog.Record
}

func newHeldLog(h slog.Handler) *heldLog { return &heldLog{Handler: h, state: &heldState{}} }

// Handle implements slog.Handler.
func (h *heldLog) Handle(ctx context.Context, r slog.Record) error {
	h.state.mu.Lock()
	if !h.state.released {
		h.state.held = append(h.state.held, heldRecord{to: h.Handler, record: r.Clone()})
		h.state.mu.Unlock()
		return nil
	}
	h.state.mu.Unlock()
	return h.Handler.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (h *heldLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &heldLog{Handler: h.Handler.WithAttrs(attrs), state: h.state}
}

// WithGroup implements slog.Handler.
func (h *heldLog) WithGroup(name string) slog.Handler {
	return &heldLog{Handler: h.Handler.WithGroup(name), state: h.state}
}

// release writes first, if it is set, and then what was held. Later lines go through.
func (h *heldLog) release(first func()) {
	h.state.mu.Lock()
	held := h.state.held
	h.state.held, h.state.released = nil, true
	h.state.mu.Unlock()
	if first != nil {
		first()
	}
	for _, x := range held {
		_ = x.to.Handle(context.Background(), x.record) // a log that cannot be written has nobody to tell
	}
}
