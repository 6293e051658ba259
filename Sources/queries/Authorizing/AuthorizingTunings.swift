import Diagnostics

/// How the room shares out its time and memory: promised to nobody. Its maxima are in `Diagnostics/Limits.swift`.
extension Limits {
    /// A connection that nobody needed for so long is given back.
    static let channelIdleLimit = Duration.seconds(60)

    /// What may take up a question's time: the way to a database that is away, and one that says nothing.
    static let channelConnectTimeout = Duration.seconds(3)
    static let channelAnswerTimeout = Duration.seconds(3)

    /// After a connection could not be made, everybody is refused for so long.
    static let channelRetryInterval = Duration.seconds(1)

    /// Questions taken from the queue at once, and those of one transaction, which begins none after its budget.
    static let channelTurn = 512
    static let channelBatch = 256
    static let channelBatchBudget = Duration.milliseconds(100)

    /// What one question may take beyond that while others wait; one that takes longer is asked again by itself. While
    /// there were such ones lately, the others hurry …
    static let channelQuickTimeout = Duration.milliseconds(250)
    static let channelHurriedBudget = Duration.milliseconds(15)
    static let channelHurriedTimeout = Duration.milliseconds(50)
    /// … for so long, and its topic is asked about by itself at once.
    static let channelPenalty = Duration.seconds(10)
    /// After so many in that time, whatever is alike is asked beside the others.
    static let channelSuspicion = 3
    /// What a question may take by itself.
    static let channelProbeTimeout = Duration.seconds(2)

    /// Plans are made anew after this: they do not notice every change of who may do what.
    static let channelPlanLife = Duration.milliseconds(250)

    static func checkAuthorizing() {
        precondition(
            channelBatch <= channelTurn && channelTurn <= maximumWaitingChannelQuestions,
            "questions asked together must fit what is taken at once, and that the queue")
        precondition(
            channelProbeTimeout < channelAnswerTimeout && channelConnectTimeout < channelPatience
                && channelHurriedTimeout <= channelQuickTimeout && channelQuickTimeout < channelProbeTimeout,
            "a server that stops a probe must have the time to say so, and a client to hear of it")
        precondition(
            channelPatience + max(channelProbeTimeout, channelBatchBudget + channelQuickTimeout) < .seconds(10),
            "a client waits 10 seconds for the answer to a join")
    }
}
