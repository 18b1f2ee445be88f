package quorum

import (
	"context"
	"fmt"
	"log/slog"
)

// raftLogger gives raft's messages to slog. Raft's informational messages are for debugging it; what an operator
// should see this package says itself.
type raftLogger struct{ *slog.Logger }

func (l raftLogger) print(level slog.Level, v ...any) {
	if l.Enabled(context.Background(), level) {
		l.Log(context.Background(), level, "raft", "message", fmt.Sprint(v...))
	}
}

func (l raftLogger) printf(level slog.Level, format string, v ...any) {
	if l.Enabled(context.Background(), level) {
		l.Log(context.Background(), level, "raft", "message", fmt.Sprintf(format, v...))
	}
}

func (l raftLogger) Debug(v ...any)                   { l.print(slog.LevelDebug, v...) }
func (l raftLogger) Debugf(format string, v ...any)   { l.printf(slog.LevelDebug, format, v...) }
func (l raftLogger) Info(v ...any)                    { l.print(slog.LevelDebug, v...) }
func (l raftLogger) Infof(format string, v ...any)    { l.printf(slog.LevelDebug, format, v...) }
func (l raftLogger) Warning(v ...any)                 { l.print(slog.LevelWarn, v...) }
func (l raftLogger) Warningf(format string, v ...any) { l.printf(slog.LevelWarn, format, v...) }
func (l raftLogger) Error(v ...any)                   { l.print(slog.LevelError, v...) }
func (l raftLogger) Errorf(format string, v ...any)   { l.printf(slog.LevelError, format, v...) }

// Fatal and Panic end the node, not the process: guard turns them into an error.
func (l raftLogger) Fatal(v ...any)                 { panic(raftPanic(fmt.Sprint(v...))) }
func (l raftLogger) Fatalf(format string, v ...any) { panic(raftPanic(fmt.Sprintf(format, v...))) }
func (l raftLogger) Panic(v ...any)                 { panic(raftPanic(fmt.Sprint(v...))) }
func (l raftLogger) Panicf(format string, v ...any) { panic(raftPanic(fmt.Sprintf(format, v...))) }
