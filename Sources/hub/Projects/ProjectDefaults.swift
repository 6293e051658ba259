import Settings

/// Values for a project whose description leaves them out: the numbers of the settings, in the units of the API.
public struct ProjectDefaults: Sendable {
    public let limits: ProjectLimits
    /// Limit that is stored and reported without effect, as in the reference server.
    public let maximumBytesPerSecond = 100_000

    public init(_ limits: ProjectLimits) {
        self.limits = limits
    }
}

extension Configuration {
    public var projectDefaults: ProjectDefaults { ProjectDefaults(projectLimits) }
}
