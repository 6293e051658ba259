import Diagnostics
import System

/// Settings for listening, and limits of each connection.
public struct SocketSettings: Sendable {
    /// Method of passing output to the kernel.
    public enum Backend: String, Sendable, CaseIterable {
        /// io_uring where the kernel allows it, otherwise `epoll`.
        case automatic
        case epoll
        /// io_uring; starting fails if the kernel does not allow it.
        case ring
    }

    /// PEM files: the certificate with its chain, and its key.
    public struct TLS: Sendable {
        public var certificate: String
        public var key: String

        public init(certificate: String, key: String) {
            self.certificate = certificate
            self.key = key
        }
    }

    /// A name or a numeric address; `*` means every address of the machine.
    public var host: String
    /// Port; 0 means any free one.
    public var port: UInt16
    public var loopCount: Int
    public var tls: TLS?
    public var backend = Backend.automatic

    /// True if each loop gets its own descriptor table and so the whole limit of open files. Of the process's open
    /// descriptors the loop then sees only 0–2 and the loops' bells.
    public var ownDescriptorTables = false

    public var listenBacklog = Limits.listenBacklog
    public var maximumConnections = Limits.maximumConnectionsPerLoop
    public var idleLimit: Duration? = Limits.socketIdleLimit
    public var handshakeLimit = Limits.handshakeLimit
    /// Limit of the bytes that the application may leave unconsumed.
    public var receiveBytes = Limits.receiveBufferBytes
    /// Memory for incomplete messages of all connections together.
    public var inputBudget = InputBudget(Limits.unfinishedInputBytes)
    /// Time to complete a message, whatever else the client sends.
    public var unfinishedLimit = Limits.unfinishedInputLimit
    public var outboxBytes = Limits.outboxBytes
    /// Time for which a blocked connection may take no bytes.
    public var outboxAge = Limits.outboxAge
    /// Size of a backlog above which the application is told, so that it can postpone output.
    var filledBytes: Int { min(Limits.filledBytes, outboxBytes / 8) }
    /// Memory that all blocked connections of one loop may hold together.
    public var outboxTotalBytes = Limits.outboxTotalBytes
    /// `SO_SNDBUF`; nil leaves the buffer to the kernel, which lets it grow.
    public var sendBuffer: Int? = Limits.socketSendBufferBytes
    public var time: any TimeSource = KernelTime()

    public init(host: String, port: UInt16, loopCount: Int, tls: TLS? = nil) {
        self.host = host
        self.port = port
        self.loopCount = loopCount
        self.tls = tls
    }
}
