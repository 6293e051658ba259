import Settings

/// What a project gets where its description says nothing: the numbers of the settings, in the units of the API.
public struct ProjectDefaults: Sendable {
    public let limits: ProjectLimits
    /// Stored and told, and without effect, as in the reference.
    public let maximumBytesPerSecond = 100_000

    public init(_ limits: ProjectLimits) {
        self.limits = limits
    }
}

extension Configuration {
    public var projectDefaults: ProjectDefaults { ProjectDefaults(projectLimits) }
}
