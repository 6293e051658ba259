import Diagnostics

/// Internal limits on the time and memory of socket loops. They are not promised to users; the promised limits are in
/// `Diagnostics/Limits.swift`.
extension Limits {
    /// Number of connections that may wait to be accepted. The kernel reduces the number to `net.core.somaxconn`.
    static let listenBacklog: Int32 = 4096

    /// Number of connections that a loop accepts from one listener before it handles other events.
    static let acceptBatch = 64

    /// Size of the kernel's send buffer for one connection. The kernel doubles the number. Without a value the buffer
    /// grows to 4 MiB.
    static let socketSendBufferBytes = 256 << 10

    /// Number of sends between two checks for input, so that a large fan-out does not delay other clients.
    public static let sendsBetweenReads = 1000

    /// Number of sends that one call to io_uring passes to the kernel.
    static let ringBatch = 256
}
