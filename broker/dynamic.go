package broker

import (
	"log/slog"
	"strconv"
	"sync/atomic"

	"gregor/broker/config"
	"gregor/broker/replica"
	"gregor/kraft/image"
)

// dynamicConfig keeps the config that is in force: server.properties with what was altered since (KIP-226). It is a
// publisher of the loader.
type dynamicConfig struct {
	base     *config.Config
	current  atomic.Pointer[config.Config]
	replicas *replica.Manager
	// changed tells the parts of the broker that have settings of their own at run time.
	changed []func(*config.Config)
	log     *slog.Logger
}

func newDynamicConfig(base *config.Config, log *slog.Logger) *dynamicConfig {
	d := &dynamicConfig{base: base, log: log}
	d.current.Store(base)
	return d
}

// Config is the config in force.
func (d *dynamicConfig) Config() *config.Config { return d.current.Load() }

// Name implements image.Publisher.
func (d *dynamicConfig) Name() string { return "dynamic config" }

// Publish implements image.Publisher.
func (d *dynamicConfig) Publish(delta *image.Delta, img *image.Image, _ image.Manifest) {
	own := strconv.Itoa(int(d.base.Node.ID))
	touched := false
	for _, r := range delta.ChangedConfigs() {
		touched = touched || r.Type == image.ResourceBroker && (r.Name == "" || r.Name == own)
	}
	if !touched {
		return
	}
	next, warnings := d.base.WithDynamic(img.Configs.BrokerDefault(), img.Configs.Broker(d.base.Node.ID))
	for _, w := range warnings {
		d.log.Warn("dynamic config", "key", w.Key, "reason", w.Message)
	}
	d.current.Store(next)
	d.replicas.RefreshConfigs(img)
	for _, f := range d.changed {
		f(next)
	}
}
