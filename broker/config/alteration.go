package config

import (
	"errors"
	"fmt"

	"gregor/internal/configdef"
)

// threadPools are the keys of pools that Kafka resizes by at most a factor of two at a time (KIP-226). Gregor has no such
// pools; what Kafka would refuse is refused all the same, so that a script tried on one works on the other.
var threadPools = []string{
	"background.threads", "log.cleaner.threads", "num.io.threads", "num.network.threads", "num.recovery.threads.per.data.dir",
	"num.replica.fetchers", "remote.log.manager.copier.thread.pool.size", "remote.log.manager.expiration.thread.pool.size",
	"remote.log.reader.threads",
}

// CheckAlteration says why dynamic configs cannot be taken over, nil when they can: defaults are those of all brokers
// and own those of this one, as they would be after the alteration. Keys that the table does not have, and values
// that are not valid by themselves, are the caller's to judge.
func (c *Config) CheckAlteration(defaults, own map[string]string) error {
	v := &values{static: c.values.static}
	v.dynamicDefault, _ = dynamicValues(defaults, configdef.ClusterWide, nil)
	v.dynamicBroker, _ = dynamicValues(own, configdef.PerBroker, nil)
	next := &Config{values: v}
	if err := next.build(); err != nil {
		if e := new(Error); errors.As(err, &e) {
			return fmt.Errorf("%s: %s", e.Key, e.Message)
		}
		return err
	}
	for _, name := range threadPools {
		is, will := c.number(name), next.number(name)
		switch {
		case will < is/2:
			return fmt.Errorf("Dynamic thread count update validation failed for %s=%d, value should be at least half the current value %d", name, will, is) //nolint:staticcheck // Kafka's words, which its tools show
		case will > is*2:
			return fmt.Errorf("Dynamic thread count update validation failed for %s=%d, value should not be greater than double the current value %d", name, will, is) //nolint:staticcheck // Kafka's words, which its tools show
		}
	}
	return nil
}

// number is the value in force of a key that holds a number.
func (c *Config) number(name string) int64 {
	v, ok := c.Lookup(name)
	if !ok || v.Text == nil {
		return 0
	}
	var n int64
	if _, err := fmt.Sscan(*v.Text, &n); err != nil {
		return 0
	}
	return n
}
