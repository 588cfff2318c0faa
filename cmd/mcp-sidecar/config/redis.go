package config

import (
	"github.com/mcp-sidecar/mcp-sidecar/conversation/redisstore"
)

// RedisOptions returns what the shared store has to know of the configuration.
func (c *Config) RedisOptions() redisstore.Options {
	o := redisstore.DefaultOptions()
	o.URL, o.PasswordFile, o.CAFile, o.Prefix, o.Life = c.Redis, c.RedisPasswordFile, c.RedisCAFile, c.RedisPrefix, c.RegistrationTTL
	return o
}

func (c *Config) validateRedis(r *report) {
	if c.Redis == "" {
		for key, file := range map[string]string{"redisPasswordFile": c.RedisPasswordFile, "redisCaFile": c.RedisCAFile} {
			if file != "" {
				r.add(key, "is for --redis, which is not set")
			}
		}
		return
	}
	if err := c.RedisOptions().Validate(); err != nil {
		r.add("redis", "%s", err)
	}
	if c.SessionKeyFile == "" {
		r.add("redis", "replicas must be able to open each other's sessions: give all of them the same --session-key-file")
	}
}
