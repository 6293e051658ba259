import Net

/// Timers of one channel.
struct ChannelTimers {
    /// Timer for the next check of the token.
    var expiry: TimerID?
    /// Timer for the longest time that the join's reply waits for bindings.
    var join: TimerID?
    /// Timer for the next attempt to resolve the bindings.
    var bind: TimerID?
    /// Timer for the pause after a report that values are missing.
    var lack: TimerID?
    /// Timer for the pause after a report of a loss.
    var loss: TimerID?
    /// Timer for the next check whether the database's messages arrive.
    var ready: TimerID?

    /// Timers that run.
    var running: [TimerID] { [expiry, join, bind, lack, loss, ready].compactMap(\.self) }
}
