import Diagnostics

/// Internal limits on the time and memory of questions about private channels. They are not promised to users; promised
/// limits are in `Diagnostics/Limits.swift`.
extension Limits {
    /// Time after which an unused connection is closed.
    static let channelIdleLimit = Duration.seconds(60)

    /// Longest wait for a connection to the database, and for an answer. Both count against the time of a question.
    static let channelConnectTimeout = Duration.seconds(3)
    static let channelAnswerTimeout = Duration.seconds(3)

    /// Time for which all questions are refused after a connection could not be made.
    static let channelRetryInterval = Duration.seconds(1)

    /// Questions taken from the queue at once, questions of one transaction, and the time after which it begins no
    /// further one.
    static let channelTurn = 512
    static let channelBatch = 256
    static let channelBatchBudget = Duration.milliseconds(100)

    /// Time beyond the budget for one question while others wait. A question that takes longer is asked again by
    /// itself. If some questions were slow recently, the lower "hurried" values apply to the others.
    static let channelQuickTimeout = Duration.milliseconds(250)
    static let channelHurriedBudget = Duration.milliseconds(15)
    static let channelHurriedTimeout = Duration.milliseconds(50)
    /// Time for which the hurried values apply, and for which the slow question's topic is asked about by itself.
    static let channelPenalty = Duration.seconds(10)
    /// Number of slow questions of one kind, in that time, after which all of that kind are asked apart from the
    /// others.
    static let channelSuspicion = 3
    /// Time for a question that is asked by itself.
    static let channelProbeTimeout = Duration.seconds(2)

    /// Time after which plans are made again, because plans do not notice every change of privileges.
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
