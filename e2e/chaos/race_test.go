//go:build chaos && unix && race

package chaos

const raceEnabled = true
