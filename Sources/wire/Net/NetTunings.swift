import Diagnostics

/// Internal limits on the time and memory of socket loops. They are not promised to users; promised limits are in
/// `Diagnostics/Limits.swift`.
extension Limits {
    /// Connections that wait to be accepted. The kernel reduces the number to `net.core.somaxconn`.
    static let listenBacklog: Int32 = 4096

    /// Connections accepted from one listener before other events are handled.
    static let acceptBatch = 64

    /// The kernel's send buffer of one connection. The kernel doubles the number; without a value the buffer grows to 4
    /// MiB.
    static let socketSendBufferBytes = 256 << 10

    /// Sends between two checks for input, so that a large fan-out does not delay other clients.
    public static let sendsBetweenReads = 1000

    /// Sends passed to the kernel by one call with io_uring.
    static let ringBatch = 256
}
