package conversation

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// RegistryConfig is what the registry needs to know of the configuration. It can be replaced at run time, see Registry.SetConfig.
type RegistryConfig struct {
	// Servers are the names of the configured servers.
	Servers []string
	// AgentServers are the configured agent servers, by name.
	AgentServers map[string]AgentServerSettings
	// TTL is how long a registration lives without a sign of life (traffic, or a renewal); 0 is for good. Registrations by the config file
	// and through the admin API live for good unless they say otherwise.
	TTL time.Duration
	// RebuildGrace is how long a conversation that was unknown or dormant may take to list its tools by itself before it is refreshed.
	RebuildGrace time.Duration
	// ParkedGrace is the least time between a failed attempt and the one that a sign of life brings forward.
	ParkedGrace time.Duration
	// RemovedGrace is how long traffic and discovery don't register a conversation again after it was removed.
	RemovedGrace time.Duration
	// ClockSkew is how far the clocks of agent servers may be ahead of ours.
	ClockSkew time.Duration
	// FlushInterval is how long signs of life may wait to be written.
	FlushInterval time.Duration
	// SweepInterval is how often expired registrations are looked for.
	SweepInterval time.Duration
	// RetryInterval is how long a write that the store couldn't take waits for its next try.
	RetryInterval time.Duration
	// ResyncInterval is how often a shared store is compared with memory, without any sign that changes were missed.
	ResyncInterval time.Duration
}

// AgentServerSettings is what the registry needs to know of an agent server.
type AgentServerSettings struct {
	// IdleAfter is the time without activity after which the agent server forgets the tools of a conversation and will build fresh ones by
	// itself; 0 is never.
	IdleAfter time.Duration
	// Pattern says that the name stands for several agent servers, each known by its URL. They are counted together.
	Pattern bool
}

// DefaultRegistryConfig returns the defaults, without any server or agent server.
func DefaultRegistryConfig() RegistryConfig {
	return RegistryConfig{
		TTL:           7 * 24 * time.Hour,
		RebuildGrace:  5 * time.Second,
		ParkedGrace:   15 * time.Second,
		RemovedGrace:  time.Minute,
		ClockSkew:     2 * time.Second,
		FlushInterval: 30 * time.Second,
		SweepInterval: time.Minute,
		RetryInterval: 5 * time.Second,

		ResyncInterval: 5 * time.Minute,
	}
}

func (c RegistryConfig) validate() error {
	var errs []error
	for _, s := range c.Servers {
		errs = append(errs, ValidateName(s))
	}
	for name, a := range c.AgentServers {
		errs = append(errs, ValidateName(name))
		if a.IdleAfter < 0 {
			errs = append(errs, fmt.Errorf("agent server %q: IdleAfter is negative", name))
		}
	}
	return errors.Join(append(errs, atLeast(
		bound{"TTL", c.TTL, 0},
		bound{"RebuildGrace", c.RebuildGrace, 0},
		bound{"ParkedGrace", c.ParkedGrace, 0},
		bound{"RemovedGrace", c.RemovedGrace, 0},
		bound{"ClockSkew", c.ClockSkew, 0},
		bound{"FlushInterval", c.FlushInterval, 1},
		bound{"SweepInterval", c.SweepInterval, 1},
		bound{"RetryInterval", c.RetryInterval, 1},
		bound{"ResyncInterval", c.ResyncInterval, 1},
	))...)
}

// bound is the least that a setting may be.
type bound struct {
	name         string
	value, least time.Duration
}

// atLeast names all settings that are below their bounds.
func atLeast(bounds ...bound) error {
	var errs []error
	for _, b := range bounds {
		if b.value < b.least {
			errs = append(errs, fmt.Errorf("%s is %v: it must be at least %v", b.name, b.value, b.least))
		}
	}
	return errors.Join(errs...)
}

// RegistryDeps is what the registry works with.
type RegistryDeps struct {
	Store   Store            // required; the registry doesn't close it
	Shared  SharedStore      // the same store, if other replicas work with it too; see Registry.Apply
	Logger  *slog.Logger     // nil is silent
	Metrics *Metrics         // nil is unregistered
	Now     func() time.Time // nil is time.Now
	// OnGeneration is told that a server has another generation. It must return at once and not call the registry. Nil is nobody.
	OnGeneration func()
}
