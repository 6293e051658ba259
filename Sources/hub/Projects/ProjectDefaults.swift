import Settings

/// Values for members that a project's description leaves out: those of the settings, in the API's units.
public struct ProjectDefaults: Sendable {
    public let limits: ProjectLimits
    /// Limit that is stored and reported but has no effect, as in the reference server.
    public let maximumBytesPerSecond = 100_000

    public init(_ limits: ProjectLimits) {
        self.limits = limits
    }
}

extension Configuration {
    public var projectDefaults: ProjectDefaults { ProjectDefaults(projectLimits) }
}
