import Net

/// Timers of one channel.
struct ChannelTimers {
    /// Timer for the next check of the token's expiry.
    var expiry: TimerID?
    /// Timer for the end of the time for which the join's reply waits for bindings.
    var join: TimerID?
    /// Timer for the next attempt to resolve the bindings.
    var bind: TimerID?
    /// Timer for the pause after a report that records lack values.
    var lack: TimerID?
    /// Timer for the pause after a loss report.
    var loss: TimerID?
    /// Timer for the next check if the hub receives messages that PostgreSQL broadcasts.
    var ready: TimerID?

    /// Timers that are running.
    var running: [TimerID] { [expiry, join, bind, lack, loss, ready].compactMap(\.self) }
}
