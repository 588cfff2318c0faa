package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/admin"
	"github.com/mcp-sidecar/mcp-sidecar/cmd/mcp-sidecar/config"
	"github.com/mcp-sidecar/mcp-sidecar/proxy/filewatch"
)

const (
	// recheckFiles is how often files are looked at without any event: some file
	// systems have none.
	recheckFiles = time.Second
	// retryRejected is how often a configuration with mistakes is tried again, since
	// what it lacks may be a file that comes later.
	retryRejected = 2 * time.Second
	// reloadTimeout bounds one reload, since signals wait for it.
	reloadTimeout = 30 * time.Second
)

// occasion is why the configuration is read again.
type occasion int

const (
	asked   occasion = iota // somebody did
	changed                 // a file did
	again                   // what was read last had mistakes
)

// watchFiles reads the configuration and the session keys again when their files
// change, until ctx ends. Other files are read whenever they are used.
func (a *app) watchFiles(ctx context.Context) error {
	change := make(chan struct{}, 1)
	change <- struct{}{} // maybe since the start
	w := filewatch.New(a.watchedFiles, recheckFiles, a.log.With("component", "config"))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		w.Run(ctx, func(path string) {
			a.log.Debug("a file changed", "path", path)
			select {
			case change <- struct{}{}:
			default:
			}
		})
	}()
	defer func() { <-ended }()
	retry := time.NewTicker(retryRejected)
	defer retry.Stop()
	missing := false
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-change:
			_ = a.reloadBecause(ctx, changed) // it has logged what is wrong
		case <-retry.C:
			// A file that is being replaced may be away for a moment.
			before := missing
			missing = a.fileMissing()
			if a.configErr.Load() != nil || missing && before {
				_ = a.reloadBecause(ctx, again)
			}
		}
	}
}

// fileMissing reports whether there is no configuration file although there was one.
func (a *app) fileMissing() bool {
	if a.file == "" {
		return false
	}
	_, err := os.Stat(a.file)
	return errors.Is(err, fs.ErrNotExist)
}

func (a *app) watchedFiles() []string {
	return slices.DeleteFunc([]string{a.file, a.cfg.Load().SessionKeyFile}, func(file string) bool { return file == "" })
}

// Reload implements [admin.Control].
func (a *app) Reload(ctx context.Context) error {
	err := a.reloadBecause(ctx, asked)
	if bad, ok := errors.AsType[*config.Error](err); ok {
		rejected := &admin.RejectedError{}
		for _, p := range bad.Problems {
			rejected.Problems = append(rejected.Problems, p.String())
		}
		return rejected
	}
	return err
}

// reloadBecause reads the configuration again and says what came of it: once for
// each content of the files, and whenever somebody asked.
func (a *app) reloadBecause(ctx context.Context, why occasion) error {
	ctx, cancel := context.WithTimeout(ctx, reloadTimeout)
	defer cancel()
	a.reloading.Lock()
	defer a.reloading.Unlock()
	keys, err := a.reload(ctx)
	last := a.configErr.Load()
	if err != nil {
		msg := err.Error()
		known := last != nil && *last == msg
		if why == again && known {
			return err
		}
		a.configErr.Store(&msg)
		if why == changed || !known {
			a.log.Error("configuration rejected, the last good one stays in force", "err", err)
		}
	} else {
		a.configErr.Store(nil)
		switch {
		case len(keys) > 0:
			a.log.Info("configuration reloaded", "changed", keys)
		case why == asked || last != nil:
			a.log.Info("configuration unchanged")
		default: // a comment, say
			return nil
		}
	}
	a.metrics.loaded(err)
	result := "ok"
	if err != nil {
		result = "rejected"
	}
	a.feed.Publish(admin.Event{Type: "reload", At: time.Now(), Result: result})
	return err
}

// reload puts in force what the files say now, and returns the keys of what
// changed. What may fail comes first, so that it is taken whole or not at all.
func (a *app) reload(ctx context.Context) ([]string, error) {
	if a.load == nil {
		return nil, errors.New("the configuration can't be reloaded")
	}
	next, err := a.load()
	if err != nil {
		return nil, err
	}
	old := a.cfg.Load()
	var sessionKeys [][]byte
	if old.SessionKeyFile != "" && next.SessionKeyFile != "" {
		if sessionKeys, err = readSessionKeys(next.SessionKeyFile); err != nil {
			return nil, err
		}
	}
	changes := config.Changes(old, next)
	if len(changes) > 0 {
		if err := a.adopt(ctx, old, next); err != nil {
			return nil, err
		}
	}
	if sessionKeys != nil {
		replaced, err := a.keys.Update(sessionKeys...)
		if err != nil {
			return nil, err
		}
		if replaced {
			a.log.Info("session keys replaced", "keys", len(sessionKeys))
		}
	}
	if keys := needRestart(old, next); len(keys) > 0 {
		a.log.Warn("some settings count after a restart only", "keys", keys)
	}
	return changes, nil
}

// adopt puts another configuration in force. Sessions, streams and refreshes of
// what stays the same go on.
func (a *app) adopt(ctx context.Context, old, next *config.Config) error {
	plan, err := a.backends.plan(next.Servers)
	if err != nil {
		return err
	}
	tokens, err := readTokens(next.ListenTokenFile)
	if err != nil {
		return err
	}
	if err := a.registry.SetConfig(registryConfig(next)); err != nil {
		return err
	}
	if err := a.proxy.Update(proxyConfig(next, plan, a.addr("agents"))); err != nil {
		return errors.Join(err, a.registry.SetConfig(registryConfig(old)))
	}
	a.cfg.Store(next)
	a.listenTokens.use(next.ListenTokenFile, tokens)
	a.replicas.setServers(next.ServerNames())
	if err := a.backends.apply(ctx, plan); err != nil {
		return err
	}
	a.level.Set(next.LogLevel)
	if !reflect.DeepEqual(old.AgentServers, next.AgentServers) {
		if err := a.agents.Configure(ctx, next); err != nil {
			return err
		}
	}
	if discoveryConfig(old) != discoveryConfig(next) {
		if err := a.discoverer.SetConfig(discoveryConfig(next)); err != nil {
			return err
		}
	}
	if agents := a.addr("agents"); !reflect.DeepEqual(publicURLs(old, agents), publicURLs(next, agents)) || !reflect.DeepEqual(paths(old), paths(next)) {
		a.discoverer.SetMatcher(newMatcher(next, agents))
	}
	return a.registerConfigured(ctx, next)
}

// needRestart returns the keys of the settings that changed and are read only
// when the sidecar starts.
func needRestart(old, next *config.Config) []string {
	var keys []string
	for key, field := range map[string]func(*config.Config) any{
		"listen":             func(c *config.Config) any { return c.Listen },
		"listenTransport":    func(c *config.Config) any { return c.ListenTransport },
		"tlsCertFile":        func(c *config.Config) any { return c.TLSCertFile },
		"tlsKeyFile":         func(c *config.Config) any { return c.TLSKeyFile },
		"opsListen":          func(c *config.Config) any { return c.OpsListen },
		"adminListen":        func(c *config.Config) any { return c.AdminListen },
		"registerListen":     func(c *config.Config) any { return c.RegisterListen },
		"state":              func(c *config.Config) any { return c.State },
		"redis":              func(c *config.Config) any { return c.Redis },
		"redisPasswordFile":  func(c *config.Config) any { return c.RedisPasswordFile },
		"redisCaFile":        func(c *config.Config) any { return c.RedisCAFile },
		"redisPrefix":        func(c *config.Config) any { return c.RedisPrefix },
		"sessionKeyFile":     func(c *config.Config) any { return c.SessionKeyFile != "" },
		"logFormat":          func(c *config.Config) any { return c.LogFormat },
		"refreshConcurrency": func(c *config.Config) any { return c.RefreshConcurrency },
	} {
		if field(old) != field(next) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}
