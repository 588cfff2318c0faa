// Package health finds out whether a backend MCP server is up, whether it is still the same process, and which tools it
// offers.
//
// A [Checker] watches one server. Signs that something happened come from everywhere: a probe failed, the sentinel (an idle
// connection that has served a request) or the probe's own stream ended, the proxy was refused or told that a session is
// unknown ([Checker.Suspect]), a watched file changed, the backend said list_changed. Each is only a reason to look; what a
// look finds is evidence:
//
//   - the process answers, or nothing listens, or it is slow or not ready. Only a port on which nothing listens counts at
//     once, everything else after several failures in a row;
//   - it is another process if the probe's session is unknown, if nothing listened in between and no connection of before
//     still serves, or if the configured identity is another one. Slow, flapping or frozen processes are never swaps;
//   - tools/list hashes to something ([HashTools]). A new hash counts when two listings agree, and right after a swap
//     missing tools get more time, since servers register tools while they start.
//
// What is found goes to one function ([Deps].Notify), serially and in order. Between two swaps the states of a process are
// [Away], [Ready] and [Settled]; only the last one has tools. All time is monotonic: a clock that jumps changes nothing.
//
// [List], [HashTools] and [Diff] are usable by themselves.
package health
