import Diagnostics

/// Limits for the clients of one project, from the settings or from a stored project's record. In optional limits, nil
/// means no limit.
public struct ProjectLimits: Sendable, Equatable {
    /// Maximum number of sockets that have joined a channel at the same time.
    public var maximumConcurrentUsers: Int?
    public var maximumChannelsPerClient: Int
    /// Maximum number of joins in a second. It is an average over some seconds, so that a short burst passes.
    public var maximumJoinsPerSecond: Int?
    /// Maximum number of messages in a second that the project's clients send and receive, as an average over some
    /// seconds.
    public var maximumEventsPerSecond: Int?
    /// Maximum number of presence messages in a second, as an average over some seconds.
    public var maximumPresenceEventsPerSecond: Int?
    /// Maximum number of presence messages that one channel may send in `clientPresenceWindow`.
    public var clientPresenceEvents: Int?
    public var clientPresenceWindow: Duration
    /// Maximum size of the payload of a broadcast or presence message.
    public var maximumPayloadBytes: Int
    /// True if the hub refuses channels that are not private.
    public var isPrivateOnly: Bool
    /// True if every channel receives presence, even if it does not ask for it.
    public var presenceEnabled: Bool
    /// True if the hub refuses all clients.
    public var isSuspended: Bool

    public init(
        maximumConcurrentUsers: Int? = nil, maximumChannelsPerClient: Int, maximumJoinsPerSecond: Int? = nil,
        maximumEventsPerSecond: Int? = nil, maximumPresenceEventsPerSecond: Int? = nil,
        clientPresenceEvents: Int? = nil, clientPresenceWindow: Duration, maximumPayloadBytes: Int, isPrivateOnly: Bool,
        presenceEnabled: Bool, isSuspended: Bool
    ) {
        self.maximumConcurrentUsers = maximumConcurrentUsers
        self.maximumChannelsPerClient = maximumChannelsPerClient
        self.maximumJoinsPerSecond = maximumJoinsPerSecond
        self.maximumEventsPerSecond = maximumEventsPerSecond
        self.maximumPresenceEventsPerSecond = maximumPresenceEventsPerSecond
        self.clientPresenceEvents = clientPresenceEvents
        self.clientPresenceWindow = clientPresenceWindow
        self.maximumPayloadBytes = maximumPayloadBytes
        self.isPrivateOnly = isPrivateOnly
        self.presenceEnabled = presenceEnabled
        self.isSuspended = isSuspended
    }

    /// Returns a limit in bytes. The reference server counts kilobytes of 1000 bytes, and allows some bytes more for
    /// the text around a payload.
    public static func payloadBytes(kilobytes: Int) -> Int {
        kilobytes * 1000 + Limits.payloadSlackBytes
    }

    public static func kilobytes(payloadBytes: Int) -> Int {
        max(1, (payloadBytes - Limits.payloadSlackBytes) / 1000)
    }

    /// Returns the limit for a number; nil for zero, which means no limit.
    public static func limit(_ number: Int) -> Int? {
        number == 0 ? nil : number
    }
}

extension Configuration {
    /// Limits of the project that the settings describe. Stored projects have their own.
    public var projectLimits: ProjectLimits {
        ProjectLimits(
            maximumConcurrentUsers: self.maximumConcurrentUsers, maximumChannelsPerClient: self.channelsPerClient,
            maximumJoinsPerSecond: self.joinsPerSecond, maximumEventsPerSecond: self.eventsPerSecond,
            maximumPresenceEventsPerSecond: self.presenceEventsPerSecond,
            clientPresenceEvents: self.clientPresenceEvents, clientPresenceWindow: self.clientPresenceWindow,
            maximumPayloadBytes: ProjectLimits.payloadBytes(kilobytes: self.payloadKilobytes),
            isPrivateOnly: self.privateOnly, presenceEnabled: self.presenceEnabled, isSuspended: false)
    }
}
