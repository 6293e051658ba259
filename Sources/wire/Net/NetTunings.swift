import Diagnostics

/// How the room shares out its time and memory: promised to nobody. Its maxima are in `Diagnostics/Limits.swift`.
extension Limits {
    /// Connections that wait to be accepted; the kernel cuts it to `net.core.somaxconn`.
    static let listenBacklog: Int32 = 4096

    /// Connections taken from one listener before the others get their turn.
    static let acceptBatch = 64

    /// The kernel's send buffer of one connection (it doubles the number); left alone it grows to 4 MiB.
    static let socketSendBufferBytes = 256 << 10

    /// Sends between two looks at what came in, so that a large fan-out does not starve anybody.
    public static let sendsBetweenReads = 1000

    /// Sends handed to the kernel by one call where io_uring is used.
    static let ringBatch = 256
}
