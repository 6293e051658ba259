import Diagnostics
import System

/// How the loops listen, and what each connection may cost.
public struct SocketSettings: Sendable {
    /// How what was queued is handed to the kernel.
    public enum Backend: String, Sendable, CaseIterable {
        /// By ring where the kernel allows it.
        case automatic
        case epoll
        /// By io_uring; starting fails where the kernel does not allow it.
        case ring
    }

    /// Files in PEM: the certificate with its chain, and its key.
    public struct TLS: Sendable {
        public var certificate: String
        public var key: String

        public init(certificate: String, key: String) {
            self.certificate = certificate
            self.key = key
        }
    }

    /// A name or a numeric address; `*` is every address of the machine.
    public var host: String
    /// 0: any free one.
    public var port: UInt16
    public var loopCount: Int
    public var tls: TLS?
    public var backend = Backend.automatic

    /// Each loop gets a descriptor table of its own, hence all of the limit of open files. Then it sees, of what the
    /// process had open, only 0–2, the loops' bells and `keptDescriptors`.
    public var ownDescriptorTables = false
    public var keptDescriptors: [Int32] = []

    public var listenBacklog = Limits.listenBacklog
    public var maximumConnections = Limits.maximumConnectionsPerLoop
    public var idleLimit: Duration? = Limits.socketIdleLimit
    public var handshakeLimit = Limits.handshakeLimit
    /// Bytes that the application may leave unconsumed.
    public var receiveBytes = Limits.receiveBufferBytes
    /// What is kept of messages that are not whole, of all connections together …
    public var inputBudget = InputBudget(Limits.unfinishedInputBytes)
    /// … and for how long, whatever else the client sends.
    public var unfinishedLimit = Limits.unfinishedInputLimit
    public var outboxBytes = Limits.outboxBytes
    /// How long it may take nothing.
    public var outboxAge = Limits.outboxAge
    /// More than this waits for it: the application is told, which can send some of it later.
    var filledBytes: Int { min(Limits.filledBytes, outboxBytes / 8) }
    /// What blocked connections may hold together on one loop.
    public var outboxTotalBytes = Limits.outboxTotalBytes
    /// `SO_SNDBUF`; nil leaves it to the kernel, which lets it grow.
    public var sendBuffer: Int? = Limits.socketSendBufferBytes
    public var time: any TimeSource = KernelTime()

    public init(host: String, port: UInt16, loopCount: Int, tls: TLS? = nil) {
        self.host = host
        self.port = port
        self.loopCount = loopCount
        self.tls = tls
    }
}
