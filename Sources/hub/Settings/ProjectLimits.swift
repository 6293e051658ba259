import Diagnostics

/// Limits for the clients of one project, from the settings or from a stored project's record.
public struct ProjectLimits: Sendable, Equatable {
    /// Maximum number of sockets with a joined channel, at the same time. Here and below, nil means no limit.
    public var maximumConcurrentUsers: Int?
    public var maximumChannelsPerClient: Int
    /// Maximum rate of joins. This and the next two are means over some seconds, so that a short burst passes.
    public var maximumJoinsPerSecond: Int?
    public var maximumEventsPerSecond: Int?
    public var maximumPresenceEventsPerSecond: Int?
    /// Maximum number of presence messages of one channel in one window.
    public var clientPresenceEvents: Int?
    public var clientPresenceWindow: Duration
    /// Maximum size of the payload of a broadcast or a presence.
    public var maximumPayloadBytes: Int
    /// True if channels that are not private are refused.
    public var isPrivateOnly: Bool
    /// True if every channel is told who is present, whether it asks or not.
    public var presenceEnabled: Bool
    /// True if no client is let in.
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

    /// Returns a limit in bytes. The reference counts kilobytes of 1000 bytes, and some bytes for the text around a
    /// payload.
    public static func payloadBytes(kilobytes: Int) -> Int {
        kilobytes * 1000 + Limits.payloadSlackBytes
    }

    public static func kilobytes(payloadBytes: Int) -> Int {
        max(1, (payloadBytes - Limits.payloadSlackBytes) / 1000)
    }

    /// Returns the limit for a number; zero means no limit (nil).
    public static func limit(_ number: Int) -> Int? {
        number == 0 ? nil : number
    }
}

extension Configuration {
    /// Limits of the project that the settings describe; stored projects have their own.
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
